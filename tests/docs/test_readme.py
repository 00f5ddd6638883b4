"""The README: short, and its program does what the session below it shows."""

import re
import signal
from pathlib import Path

import pytest

from support.hurried import hurried
from support.processes import STOPPING, Program

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROGRAM = re.search(r'^```python title="report\.py"\n(.*?)^```', README, re.MULTILINE | re.DOTALL)
SESSION = re.search(r"^    \$ python report\.py\n.*?^    …$", README, re.MULTILINE | re.DOTALL)
EXIT = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 75}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return the file of the program, with shorter pauses."""
    assert PROGRAM is not None
    path = tmp_path / "report.py"
    path.write_text(hurried(PROGRAM[1]))
    return path


def start(program: Path, last: str) -> Program:
    """Start the program, which stops when it has printed this line."""
    return Program.python(STOPPING, f"^{last}$", 1, program, folder=program.parent)


def shown() -> tuple[list[str], list[str]]:
    """What the session shows of the first process and of the second."""
    assert SESSION is not None
    parts = SESSION[0].split("$ python report.py\n")[1:]
    first, second = (re.findall(r"researching part \d+", part) for part in parts)
    return first, second


@pytest.mark.parametrize("number", EXIT)
def test_readme_program_resumes_as_the_session_shows(program: Path, number: signal.Signals) -> None:
    first, second = shown()
    assert len(first) == 3
    with start(program, first[-1]) as process:
        process.wait_until_stopped()
        process.send_signal(number)
        process.resume()
        assert (process.wait(), process.lines) == (EXIT[number], first), process.describe()
    if number == signal.SIGTERM:  # the step under way has ended
        second = [line for line in second if line not in first]
    with start(program, second[-1]) as process:
        process.wait_until_stopped()
        assert process.lines == second


def test_readme_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 98
    program = PROGRAM[1].strip().splitlines()
    assert len([line for line in program if line]) <= 15
    assert len(re.findall(r"\]\(", README)) <= 48


def test_every_page_of_docs_is_reached_from_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    architecture = (ROOT / "docs/architecture.md").read_text()
    linked = {page for page in pages if f"({page}" in index or page.startswith("reference-")}
    errors = (ROOT / "docs/errors.md").read_text()
    linked |= {page for page in pages if f"({page}" in errors}
    linked |= {page for page in pages if f"({page}" in architecture}
    assert pages - linked == set()
