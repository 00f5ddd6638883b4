"""The command as a process: signals, pipes, start-up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from outlast import __version__
from outlast.cli import exits
from outlast.cli.app import command_line

BLOCKED = """
import asyncio, sys

from outlast import step, workflow


@step
async def forever() -> None:
    print("under way", flush=True)
    await asyncio.Event().wait()


@workflow
async def blocked() -> None:
    await forever()
"""


def process(folder, *words, **options):
    environ = {**os.environ, "PYTHONWARNINGS": "error", **options.pop("env", {})}
    environ.pop("OUTLAST_STORE", None)
    return subprocess.Popen(
        [sys.executable, "-m", "outlast", *words],
        cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def finished(folder, *words, **options):
    child = process(folder, *words, **options)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


def test_python_dash_m_is_the_same_command(tmp_path):
    assert finished(tmp_path, "--version") == (0, f"outlast {__version__}\n", "")


def test_help_documents_every_exit_code(outlast):
    for words in (["--help"], ["run", "--help"], ["prune", "-h"]):
        answer = outlast(*words)
        assert answer.code == 0
        for number, meaning in exits.MEANINGS.items():
            assert re.search(rf"^\s+{number}  {re.escape(meaning)}$", answer.out, re.MULTILINE)


def test_a_shell_can_be_taught_completion(outlast):
    assert "--install-completion" in outlast("--help").out
    _, out, _ = finished(
        outlast.folder,
        env={"_OUTLAST_COMPLETE": "complete_bash", "COMP_WORDS": "outlast ru", "COMP_CWORD": "1"},
    )
    assert out.split() == ["run", "runs"]


def test_no_command_or_an_unknown_one_is_a_usage_error(outlast):
    assert outlast("nope").code == exits.USAGE
    assert "No such command 'nope'" in outlast("nope").err
    assert outlast().code == exits.USAGE


def test_of_the_commands_only_the_one_that_is_named_is_built():
    assert list(command_line("runs").commands) == ["runs"]
    assert list(command_line("chaos").commands) == ["chaos"]
    assert len(command_line("nope").commands) > 20


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, exits.INTERRUPTED, "interrupted"), (signal.SIGTERM, exits.TRY_AGAIN, "terminated")],
)
def test_a_signal_gives_the_run_back_and_says_how_it_goes_on(tmp_path, outlast, number, code, word):
    (tmp_path / "agent.py").write_text(BLOCKED)
    child = process(tmp_path, "run", "agent.py:blocked", "--id", "r1", env={"OUTLAST_GRACE": "2"})
    assert child.stderr is not None
    assert child.stderr.readline() == "under way\n"
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert child.returncode == code
    assert out == ""
    waiting, end = err.splitlines()
    assert waiting.startswith(
        f"outlast: {signal.Signals(number).name}: 1 run under way; steps have 1 s to end."
    )
    assert end == f"outlast: {word}. To go on: `outlast run agent.py:blocked --id r1`"
    assert "Nobody executes it now" in outlast("show", "r1").out


def test_a_killed_run_is_seen_as_dead_and_goes_on(tmp_path, outlast):
    (tmp_path / "agent.py").write_text(BLOCKED)
    child = process(tmp_path, "run", "agent.py:blocked", "--id", "r1", env={"OUTLAST_HEARTBEAT": "0.01"})
    assert child.stderr is not None
    child.stderr.readline()
    child.kill()
    child.communicate()
    (tmp_path / "agent.py").write_text(BLOCKED.replace("await asyncio.Event().wait()", "pass"))
    assert outlast("run", "agent.py:blocked", "--id", "r1")[:2] == (0, "null\n")
    assert "its worker died" in outlast("show", "r1").out


def test_a_second_process_waits_for_the_first(tmp_path, outlast):
    (tmp_path / "agent.py").write_text(BLOCKED)
    first = process(tmp_path, "run", "agent.py:blocked", "--id", "r1")
    assert first.stderr is not None
    first.stderr.readline()
    second = process(tmp_path, "run", "agent.py:blocked", "--id", "r1")
    assert second.stderr is not None
    assert "is under way in another process" in second.stderr.readline()
    assert outlast("cancel", "r1", "--why", "enough").code == 0
    for child in (first, second):
        child.communicate(timeout=60)
        assert child.returncode == exits.CANCELLED


def test_output_in_a_pipe_has_no_colour_and_breaks_no_line(tmp_path, outlast):
    (tmp_path / "agent.py").write_text(BLOCKED.replace("await asyncio.Event().wait()", "pass"))
    id = "long-" * 60
    assert outlast("run", "agent.py:blocked", "--id", id).code == 0
    for words in (["runs"], ["show", id]):
        _, out, _ = finished(tmp_path, *words, env={"COLUMNS": "40"})
        assert "\x1b" not in out
        assert any(id in line for line in out.splitlines())


def test_a_pipe_that_is_closed_early_is_no_traceback(tmp_path, outlast):
    (tmp_path / "agent.py").write_text(BLOCKED.replace("await asyncio.Event().wait()", "pass"))
    assert outlast("run", "agent.py:blocked", "--id", "r1").code == 0
    child = process(tmp_path, "show", "r1", "--json")
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    assert child.stderr.read() == ""
    child.stderr.close()
    child.wait(timeout=60)


def test_importing_outlast_imports_no_command_line(tmp_path):
    code = "import sys, outlast; print([m for m in sys.modules if m.split('.')[0] in ('typer', 'rich') or m.startswith('outlast.cli')])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert out == "[]\n"


def test_help_needs_neither_rich_nor_pydantic(tmp_path):
    code = (
        "import sys\nfrom outlast.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: print([m for m in ('rich', 'pydantic') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert out.splitlines()[-1] == "[]"
