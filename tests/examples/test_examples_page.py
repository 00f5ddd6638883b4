"""docs/examples*.md are executed: each session with its kills, in a folder that has the examples and nothing else.

Their pauses are shorter, and the margin of an effect is.
"""

import ast
import re
import shlex
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from example_tools import EXAMPLES, PYTHON, ROOT, ExampleProcess, Stage
from judges import (
    judge_approval,
    judge_batch,
    judge_checkpoint,
    judge_claude,
    judge_langgraph,
    judge_openai,
    judge_pydantic,
    judge_report,
    judge_stream,
    judge_undone,
)
from scripted_claude import scripted_claude

from outlast.store.address import store_at
from outlast.store.rows import RunQuery
from support.output import ANYTHING, line_pattern, matches
from support.processes import STOPPING
from support.stores import a_place
from support.waiting import wait_until

PAGE = "".join(
    (ROOT / "docs" / name).read_text() for name in ("examples.md", "examples-frameworks.md")
)
SECTIONS = {
    title: text for title, _, text in (part.partition("\n") for part in PAGE.split("\n## ")[1:])
}
PORT = "8765"
JUDGES = {
    "report.py": (judge_report, 1), "batch.py": (judge_batch, 1), "checkpoint.py": (judge_checkpoint, 1), "approval.py": (judge_approval, 3),
    "stream.py": (judge_stream, 1), "trip.py": (judge_undone, 2), "openai_agent.py": (judge_openai, 2), "pydantic_agent.py": (judge_pydantic, 2),
    "langgraph_agent.py": (judge_langgraph, 2), "claude_agent.py": (judge_claude, 2),
}  # fmt: skip
"""What each has done outside, and how much its deaths on the page may have made it do again."""
SERVICE = "A FastAPI service that drains with the server"
AT_ONCE = re.compile(r"(?:^researches .*\n?)+", re.MULTILINE)
"""Lines of steps that begin at the same time: their order varies."""


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


def is_as_shown(shown: list[str], printed: list[str]) -> bool:
    """Return whether a program printed what the page shows."""
    expected, found = (AT_ONCE.sub(_sorted, "\n".join(lines)) for lines in (shown, printed))
    return matches(expected, found)


def _sorted(lines: re.Match[str]) -> str:
    return "".join(f"{line}\n" for line in sorted(lines[0].splitlines()))


class Terminal:
    """Type what a page shows, and kill where it says so."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.jobs = stage, []
        self.port = str(stage.hold_port())
        stage.env |= {
            "MODEL_URL": f"http://127.0.0.1:{self.port}",
            "NO_COLOR": "1",
            "COLUMNS": "100",
            "OUTLAST_EFFECT_MARGIN": "0.5",
        }

    def type(self, typed: Typed, before: str, after: str) -> None:
        """Type a command. `before` and `after` are the commands around it."""
        words = shlex.split(typed.command.replace(PORT, self.port))
        if words[0] == "export":
            assert words[1].startswith("OUTLAST_STORE=postgresql://"), "the test says where that is"
        elif words[0] == "sleep" and after.startswith("kill"):
            wait_until(lambda: any(job.like(" collects ") for job in self.jobs))
        elif words[0] == "sleep":
            pass  # the next command is repeated until it shows what the page does
        elif words[0] == "kill":
            *numbers, job = words[1:]
            self.job(job).end(signal.SIGKILL if numbers == ["-9"] else signal.SIGTERM)
        elif words[0] == "wait":
            self.ends(self.job(words[1]), typed.shown)
        elif words[-1] == "&":
            is_killed_next = after == f"kill -9 %{len(self.jobs) + 1}" and typed.shown
            stop = pattern(typed.shown[-1]) if is_killed_next else None
            self.jobs.append(process := self.start(words[:-1], stop))
            for line in typed.shown:
                process.until(pattern(line))
            self.settle(process)
            if stop is not None:
                process.until_stopped()
        elif typed.shown[-1:] == ["Killed"]:
            self.is_killed(words, typed.shown[:-1])
        elif before.startswith("sleep"):
            wait_until(lambda: is_as_shown(typed.shown, self.stage.said(self.start(words))))
        else:
            self.ends(self.start(words), typed.shown)

    def start(self, words: list[str], stop: str | None = None) -> ExampleProcess:
        before = [] if stop is None else [STOPPING, stop, 1]
        program = {"python": before, "outlast": ["-m", "outlast"]}[words[0]]
        return self.stage.execute(*PYTHON, *program, *words[1:])

    def settle(self, process: ExampleProcess) -> None:
        """Wait until a model's server listens: it prints its port."""
        if "model_server.py" in " ".join(process.command):
            process.until("port")

    def job(self, name: str) -> ExampleProcess:
        return self.jobs[int(name.removeprefix("%")) - 1]

    def is_killed(self, words: list[str], shown: list[str]) -> None:
        last = [line for line in shown if line != ANYTHING][-1]
        if "?" in last:
            process = self.start(words)
            process.until(pattern(last))
            wait_until(self.waits_for_an_answer, process.describe)
        else:
            process = self.start(words, pattern(last))
            process.until_stopped()
        assert process.end() == -signal.SIGKILL, process.lines
        assert is_as_shown(shown, process.lines), process.lines

    def waits_for_an_answer(self) -> bool:
        store = store_at(f"sqlite:///{self.stage.folder}/outlast.db")
        store.open()
        try:
            waits = [row.waits for row in store.runs(RunQuery())]
            return any("approval" in one or "interrupt" in one for one in waits)
        finally:
            store.close()

    def ends(self, process: ExampleProcess, shown: list[str]) -> None:
        assert is_as_shown(shown, self.stage.said(process)), process.lines


@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if any(typed(text))])
def test_sessions_of_the_page_are_as_shown(stage, section, request, tmp_path):
    if "postgresql://" in SECTIONS[section]:
        with a_place(request, "postgres", tmp_path) as stage.env["OUTLAST_STORE"]:
            play(stage, section)
            stage.close()
    elif "claude_agent.py" in SECTIONS[section]:
        with scripted_claude(tmp_path / "claude") as variables:
            stage.env |= variables
            play(stage, section)
            stage.close()
    else:
        play(stage, section)


def play(stage: Stage, section: str) -> None:
    terminal, session = Terminal(stage), list(typed(SECTIONS[section]))
    commands = ["", *(one.command for one in session), ""]
    for number, one in enumerate(session):
        terminal.type(one, commands[number], commands[number + 2])
    (name,) = re.findall(r"^\[(\w+\.py)\]", SECTIONS[section].strip())
    if name in JUDGES:
        judge, again = JUDGES[name]
        judge(
            stage,
            [process for process in stage.processes if f"examples/{name}" in process.command],
            again,
        )


def test_every_example_has_a_section_and_a_docstring():
    programs = {file.name for file in EXAMPLES.glob("*.py")} - {"model_server.py"}
    linked = [
        re.search(r"^\[(\w+\.py)\]\(\.\./examples/\1\)", text.strip()) for text in SECTIONS.values()
    ]
    assert {found[1] for found in linked if found} == programs
    assert [title for title, text in SECTIONS.items() if not any(typed(text))] == [SERVICE], (
        "tried elsewhere"
    )
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
