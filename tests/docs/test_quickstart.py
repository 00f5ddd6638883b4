"""What docs/quickstart.md says of its programs: they are killed at just the moment that it speaks of."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/quickstart.md").read_text()
FILES = dict(re.findall(r"^```python title=\"([^\"]+)\"\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
PARTS = [f"researching part {part}" for part in range(1, 11)]
FINDINGS = [f"finding {part}" for part in range(1, 11)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.upper().startswith("OUTLAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OUTLAST_EFFECT_MARGIN", "1")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text.replace("asyncio.sleep(1)", "asyncio.sleep(0.5)"))
    return tmp_path


@contextmanager
def started(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, program], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], last: str) -> list[str]:
    """The lines it prints up to that one, at once when it has."""
    said: list[str] = []
    while not said or said[-1] != last:
        line = process.stdout.readline()  # type: ignore[union-attr]
        assert line, f"it ended after {said}"
        said.append(line.rstrip("\n"))
    return said


def finished(program: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, program], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def test_what_kill_9_cut_is_begun_twice_and_nothing_else(folder) -> None:
    with started("report.py", folder) as process:
        first = until(process, "researching part 4")
        process.send_signal(signal.SIGKILL)
    with started("report.py", folder) as process:
        second = until(process, "researching part 6")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 75
        rest = process.stdout.read()  # type: ignore[union-attr]
    third = finished("report.py", folder)
    assert "outlast: SIGTERM: 1 run under way; steps have 25 s to end." in rest
    assert (first, second) == (PARTS[:4], PARTS[3:6])
    assert third == [*PARTS[6:], str(FINDINGS)]
    assert finished("report.py", folder) == [str(FINDINGS)]  # the same id again: nothing is executed


def test_a_mail_that_was_out_when_the_process_died_is_not_sent_again(folder) -> None:
    with started("mail.py", folder) as process:
        until(process, "the mail is out; the provider has not answered yet")
        process.send_signal(signal.SIGKILL)
    sent = (folder / "outbox.txt").read_text()
    assert finished("mail.py", folder) == ["sent, as the outbox says"]
    assert (folder / "outbox.txt").read_text() == sent
    assert len(sent.splitlines()) == 1


def test_as_a_step_it_would_be_sent_twice(folder) -> None:
    text = FILES["mail.py"].replace("@effect(timeout=5)", "@step").replace("effect, run", "run, step")
    verify = text.index("@send_mail.verify")
    text = (text[:verify] + text[text.index("@workflow") :]).replace("key: str = KEY", 'key: str = "k"')
    (folder / "mail.py").write_text(text)
    with started("mail.py", folder) as process:
        until(process, "the mail is out; the provider has not answered yet")
        process.send_signal(signal.SIGKILL)
    assert finished("mail.py", folder)[-1] == "sent"
    assert len((folder / "outbox.txt").read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["agent.py", "agent_sync.py"])
def test_an_agent_of_ones_own_ends_with_what_the_page_shows(folder, name) -> None:
    [shown] = re.findall(rf"^\$ python {re.escape(name)}\n(.*)$", PAGE, re.MULTILINE)
    assert finished(name, folder) == [shown]
