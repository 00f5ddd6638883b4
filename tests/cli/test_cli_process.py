"""The command line as a process: signals, pipes and imports."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest
from cli_processes import SHORT_STEPS, Command

from outlast import __version__
from outlast.cli import exit_codes
from outlast.cli.app import COMMANDS, command_line
from support.waiting import WAIT_SECONDS

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


def finished(folder, *words, **env):
    with Command(folder, *words, **env) as child:
        return child.wait(), child.output, child.errors


def test_python_dash_m_is_the_same_command(tmp_path):
    assert finished(tmp_path, "--version") == (0, f"outlast {__version__}\n", "")


def test_a_shell_can_be_taught_completion(outlast):
    assert "--install-completion" in outlast("--help").out
    _, out, _ = finished(
        outlast.folder,
        _OUTLAST_COMPLETE="complete_bash",
        COMP_WORDS="outlast ru",
        COMP_CWORD="1",
    )
    assert out.split() == ["run", "runs"]


def test_no_command_or_an_unknown_one_is_a_usage_error(outlast):
    assert outlast("nope").code == exit_codes.USAGE
    assert "No such command 'nope'" in outlast("nope").err
    assert outlast().code == exit_codes.USAGE


def test_only_the_named_command_is_built():
    assert list(command_line("runs").commands) == ["runs"]
    assert list(command_line("chaos").commands) == ["chaos"]
    assert list(command_line("nope").commands) == list(COMMANDS)


@pytest.mark.parametrize(
    "code",
    [
        "import outlast, outlast.sync, outlast.testing",
        "from outlast.cli.app import COMMANDS, command_line; command_line('worker')",
    ],
)
def test_neither_a_program_nor_a_worker_loads_the_tools(code):
    code = f"import sys; {code}; print([name for name in sys.modules if 'outlast.tools' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, exit_codes.INTERRUPTED, "interrupted"),
        (signal.SIGTERM, exit_codes.TRY_AGAIN, "terminated"),
    ],
)
def test_signal_releases_the_run_with_a_hint(tmp_path, outlast, number, code, word):
    (tmp_path / "agent.py").write_text(BLOCKED)
    with Command(tmp_path, "run", "agent.py:blocked", "--id", "r1", **SHORT_STEPS) as child:
        assert child.wait_for_error_line() == "under way"
        assert child.end_by(number) == code
        assert child.output == ""
        _, waiting, end = child.error_lines
    name = signal.Signals(number).name
    assert re.match(rf"outlast: {name}: 1 run in flight; steps have \d+ s to finish\.", waiting)
    again = "again" if name == "SIGINT" else "twice"
    assert waiting.rstrip().endswith(f"Press Ctrl-C {again} to exit at once.")
    assert end == f"outlast: {word}. To continue: `outlast run agent.py:blocked --id r1`"
    assert "No worker is executing this run" in outlast("show", "r1").out


def test_killed_run_is_shown_as_dead_and_resumes(tmp_path, outlast):
    (tmp_path / "agent.py").write_text(BLOCKED)
    with Command(
        tmp_path, "run", "agent.py:blocked", "--id", "r1", OUTLAST_HEARTBEAT="0.01"
    ) as child:
        child.wait_for_error_line()
        child.kill()
    (tmp_path / "agent.py").write_text(BLOCKED.replace("await asyncio.Event().wait()", "pass"))
    assert outlast("run", "agent.py:blocked", "--id", "r1")[:2] == (0, "null\n")
    assert " died; worker " in outlast("show", "r1").out


def test_a_second_process_waits_for_the_first(tmp_path, outlast):
    (tmp_path / "agent.py").write_text(BLOCKED)
    words = ("run", "agent.py:blocked", "--id", "r1")
    with Command(tmp_path, *words) as first:
        first.wait_for_error_line()
        with Command(tmp_path, *words) as second:
            assert "is executing in another process" in second.wait_for_error_line()
            assert outlast("cancel", "r1", "--why", "enough").code == 0
            assert first.wait() == second.wait() == exit_codes.CANCELLED


def test_piped_output_has_no_colour_and_no_wrapping(tmp_path, outlast):
    (tmp_path / "agent.py").write_text(BLOCKED.replace("await asyncio.Event().wait()", "pass"))
    id = "long-" * 60
    assert outlast("run", "agent.py:blocked", "--id", id).code == 0
    for words in (["runs"], ["show", id]):
        _, out, _ = finished(tmp_path, *words, COLUMNS="40")
        assert "\x1b" not in out
        assert any(id in line for line in out.splitlines())


def test_closed_pipe_prints_no_traceback(tmp_path, outlast):
    (tmp_path / "agent.py").write_text(BLOCKED.replace("await asyncio.Event().wait()", "pass"))
    assert outlast("run", "agent.py:blocked", "--id", "r1").code == 0
    command = [sys.executable, "-m", "outlast", "show", "r1", "--json"]
    child = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    with child.stderr:
        assert child.stderr.read() == ""
    child.wait(WAIT_SECONDS)


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
