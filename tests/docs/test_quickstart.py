"""The programs of the quickstart pages, killed at the moments that the page names.

Their pauses are shorter, and so is the time-out of the effect, which its next life waits for.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from support.hurried import hurried
from support.processes import STOPPING, Program, clean_environment

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "\n".join((DOCS / name).read_text() for name in ("quickstart.md", "quickstart-agent.md"))
FILES = dict(
    re.findall(r"^```python title=\"([^\"]+)\"\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
)
EFFECT = "@effect(timeout=5)"
PARTS = [f"researching part {part}" for part in range(1, 11)]
FINDINGS = [f"finding {part}" for part in range(1, 11)]


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(hurried(text).replace(EFFECT, "@effect(timeout=1)"))
    return tmp_path


def environment() -> dict[str, str]:
    return clean_environment(OUTLAST_EFFECT_MARGIN="0.5")


def start(program: str, last: str, folder: Path) -> Program:
    """Start a program, which stops when it has printed this line."""
    return Program.python(
        STOPPING, f"^{last}$", 1, folder / program, folder=folder, env=environment()
    )


def end_at(program: str, last: str, folder: Path, number: int = signal.SIGKILL) -> Program:
    """Run a program until it has printed this line, and end it there."""
    with start(program, last, folder) as process:
        process.wait_until_stopped()
        process.send_signal(number)
        process.resume()
        process.wait()
    return process


def finished(program: str, folder: Path) -> list[str]:
    with Program.python(folder / program, folder=folder, env=environment()) as process:
        assert process.wait() == 0, process.describe()
        return process.lines


def test_only_the_killed_step_is_repeated(folder) -> None:
    first = end_at("report.py", "researching part 4", folder)
    second = end_at("report.py", "researching part 6", folder, signal.SIGTERM)
    third = finished("report.py", folder)
    assert second.process.returncode == 75
    assert re.search(
        r"outlast: SIGTERM: 1 run in flight; steps have \d+ s to finish", second.errors
    )
    assert (first.lines, second.lines) == (PARTS[:4], PARTS[3:6])
    assert third == [*PARTS[6:], str(FINDINGS)]
    assert finished("report.py", folder) == [
        str(FINDINGS)
    ]  # the same id again: nothing is executed


def test_mail_is_not_sent_twice_after_a_kill(folder) -> None:
    assert EFFECT in FILES["mail.py"]
    end_at("mail.py", "the email is out; the provider has not confirmed it yet", folder)
    sent = (folder / "outbox.txt").read_text()
    assert finished("mail.py", folder) == ["sent (found in the outbox)"]
    assert (folder / "outbox.txt").read_text() == sent
    assert len(sent.splitlines()) == 1


def test_mail_as_a_step_is_sent_twice(folder) -> None:
    text = hurried(FILES["mail.py"]).replace(EFFECT, "@step").replace("effect, run", "run, step")
    verify = text.index("@send_mail.verify")
    text = (text[:verify] + text[text.index("@workflow") :]).replace(
        "key: str = KEY", 'key: str = "k"'
    )
    (folder / "mail.py").write_text(text)
    end_at("mail.py", "the email is out; the provider has not confirmed it yet", folder)
    assert finished("mail.py", folder)[-1] == "sent"
    assert len((folder / "outbox.txt").read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["agent.py", "agent_sync.py"])
def test_agent_prints_what_the_page_shows(folder, name) -> None:
    [shown] = re.findall(rf"^\$ python {re.escape(name)}\n(.*)$", PAGE, re.MULTILINE)
    assert finished(name, folder) == [shown]
