"""docs/examples.md is executed: each session with its kills, in a folder that has the examples and nothing else."""

import ast
import os
import re
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from example_tools import EXAMPLES, ROOT, Life, Stage
from judges import judge_approval, judge_batch, judge_checkpoint, judge_report, judge_stream, judge_undone

from places import a_place
from shown import ANYTHING, line_pattern, matches

PAGE = (ROOT / "docs/examples.md").read_text()
SECTIONS = {title: text for title, _, text in (part.partition("\n") for part in PAGE.split("\n## ")[1:])}
BIN = Path(sys.executable).parent
READING_SECONDS = 0.5  # what a person takes for a question, and the program to wait for the answer
PORT = "8765"
JUDGES = {
    "report.py": (judge_report, 1), "batch.py": (judge_batch, 1), "checkpoint.py": (judge_checkpoint, 1), "approval.py": (judge_approval, 3),
    "stream.py": (judge_stream, 1), "trip.py": (judge_undone, 2),
}  # fmt: skip
"""What each has done outside, and how much its deaths on the page may have made it do again."""
SERVICE = "A FastAPI service that drains with the server"


@dataclass(frozen=True)
class Typed:
    command: str
    shown: list[str]


def typed(section: str) -> Iterator[Typed]:
    """The commands of a section's session, each with what the page shows of it."""
    lines = [line.removeprefix("    ") for line in section.splitlines() if line.startswith("    ")]
    for part in re.split(r"^\$ ", "\n".join(lines), flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield Typed(command, shown)


def pattern(shown: str) -> str:
    return f"^{line_pattern(shown)}$"


class Terminal:
    """Types what a page says, and kills where it says so."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.jobs = stage, []
        (stage.folder / "examples").symlink_to(EXAMPLES)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        stage.env |= {"MODEL_URL": f"http://127.0.0.1:{self.port}", "NO_COLOR": "1", "COLUMNS": "100"}

    def type(self, typed: Typed) -> None:
        words = shlex.split(typed.command.replace(PORT, self.port))
        if words[0] == "export":
            assert words[1].startswith("OUTLAST_STORE=postgresql://"), "the test says where that is"
        elif words[0] == "sleep":
            time.sleep(float(words[1]))
        elif words[0] == "kill":
            *numbers, job = words[1:]
            self.job(job).end(signal.SIGKILL if numbers == ["-9"] else signal.SIGTERM)
        elif words[0] == "wait":
            self.ends(self.job(words[1]), typed.shown)
        elif words[-1] == "&":
            self.jobs.append(life := self.start(words[:-1]))
            for line in typed.shown:
                life.until(pattern(line))
            self.settle(life)
        elif typed.shown[-1:] == ["Killed"]:
            self.is_killed(self.start(words), typed.shown[:-1])
        else:
            self.ends(self.start(words), typed.shown)

    def start(self, words: list[str]) -> Life:
        program = {"python": sys.executable, "outlast": os.fspath(BIN / "outlast")}[words[0]]
        return self.stage.execute(program, *words[1:])

    def settle(self, life: Life) -> None:
        """A model's server says its port when it listens; a person would not be so quick as to ask before."""
        if "model_server.py" in " ".join(map(str, life.process.args)):
            life.until("port")

    def job(self, name: str) -> Life:
        return self.jobs[int(name.removeprefix("%")) - 1]

    def is_killed(self, life: Life, shown: list[str]) -> None:
        said = life.until(pattern([line for line in shown if line != ANYTHING][-1]))
        time.sleep(READING_SECONDS if "?" in said else 0)
        assert life.end() == -signal.SIGKILL, life.lines
        assert matches("\n".join(shown), "\n".join(life.lines)), life.lines

    def ends(self, life: Life, shown: list[str]) -> None:
        assert matches("\n".join(shown), "\n".join(self.stage.said(life))), life.lines


@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if any(typed(text))])
def test_the_session_of_a_section_is_as_shown(stage, section, request, tmp_path):
    if "postgresql://" in SECTIONS[section]:
        with a_place(request, "postgres", tmp_path) as stage.env["OUTLAST_STORE"]:
            play(stage, section)
            stage.close()
    else:
        play(stage, section)


def play(stage: Stage, section: str) -> None:
    terminal = Terminal(stage)
    for one in typed(SECTIONS[section]):
        terminal.type(one)
    (name,) = re.findall(r"^\[(\w+\.py)\]", SECTIONS[section].strip())
    if name in JUDGES:
        judge, again = JUDGES[name]
        judge(stage, [life for life in stage.lives if f"examples/{name}" in life.process.args], again)


def test_every_example_has_its_section_and_its_docstring_says_how_to_start_kill_and_install():
    programs = {file.name for file in EXAMPLES.glob("*.py")} - {"model_server.py"}
    linked = [re.search(r"^\[(\w+\.py)\]\(\.\./examples/\1\)", text.strip()) for text in SECTIONS.values()]
    assert {found[1] for found in linked if found} == programs
    assert [title for title, text in SECTIONS.items() if not any(typed(text))] == [SERVICE], "tried elsewhere"
    for name in programs:
        text = (EXAMPLES / name).read_text().split('"""')[1]
        assert f"examples/{name}" in text or f"--app-dir examples {Path(name).stem}:" in text, name
        assert re.search("kill", text, re.IGNORECASE), name
        assert "Installs: outlast." in text or "pip install" in text, name


def test_the_program_of_the_readme_is_the_first_example():
    readme = re.search(
        r"^```python[^\n]*\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    example = ast.parse((EXAMPLES / "report.py").read_text())
    assert readme is not None
    assert ast.dump(ast.parse(readme[1])) == ast.dump(ast.Module(example.body[1:], type_ignores=[]))
