"""Processes on a server kill themselves before and after writes. OUTLAST_TEST_KILLS takes every write."""

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from outlast.testing import Broke, crash_processes, killed_processes
from support.spawned import spawn
from support.stores import postgres_place, redis_place

LONG = "OUTLAST_TEST_KILLS" in os.environ
PLACES = {"postgres": postgres_place, "redis": redis_place}


@pytest.fixture(params=PLACES)
def new_address(request):
    """Gives the address of a new place for each story."""
    server = request.getfixturevalue(f"{request.param}_server").url
    with ExitStack() as stack:
        yield lambda _: stack.enter_context(PLACES[request.param](server))


def forked(target, args, address, at, when, timeout) -> subprocess.CompletedProcess[str]:
    """Do as `killed_processes._process`, with a process that has imported Outlast already."""
    command = [
        sys.executable,
        "-m",
        "outlast.testing.crash_process",
        "-",
        at or 0,
        when,
        target,
        *args,
    ]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = spawn(
            command, stdout=out, stderr=err, env={**os.environ, killed_processes.ADDRESS: address}
        )
        code = process.wait(timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


@pytest.fixture
def quick_lives(monkeypatch):
    """Fork each life. The long form starts a new interpreter for each, in which sets have another order."""
    if not LONG:
        monkeypatch.setattr(killed_processes, "_process", forked)


@pytest.mark.timeout(3600 if LONG else 120)
@pytest.mark.usefixtures("quick_lives")
def test_run_ends_after_sigkill_before_or_after_any_write(new_address, tmp_path):
    program = Path(__file__).with_name("crash_program.py")
    every = 1 if LONG else 12
    report = crash_processes(
        f"{program}:small", ['"tides"'], folder=tmp_path, store=new_address, every=every
    )
    assert report.result == ["TIDES", "FLAKY", "C", {"1": 2, "2": 4}, ["TIDES", "C"]]
    assert report.crashes >= 4
    assert list(tmp_path.iterdir()) == [], "nothing is where a SQLite file would be"


FORGETFUL = """
import os
from outlast import workflow

@workflow
async def life() -> int:
    return os.getpid()
"""


def test_crash_processes_reports_the_write_whose_crash_changes_the_result(tmp_path):
    folder = tmp_path / "forgetful 100%"
    folder.mkdir()
    program = folder / "forgetful.py"
    program.write_text(FORGETFUL)
    with pytest.raises(
        Broke,
        match=r"after SIGKILL before write 1, the run ended with .*Without a crash it ended with",
    ):
        crash_processes(f"{program}:life", folder=folder)


@pytest.mark.usefixtures("quick_lives")
def test_program_imports_modules_beside_it(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "helper.py").write_text("WORD = 'hello '\n")
    (tmp_path / "sub" / "wf.py").write_text(
        "from helper import WORD\nfrom outlast import workflow\n\n@workflow\nasync def greet(n: int) -> str:\n    return WORD * n\n"
    )
    monkeypatch.chdir(tmp_path)
    report = crash_processes("sub/wf.py:greet", ["2"], folder=tmp_path, every=100)
    assert (report.result, report.crashes) == ("hello hello ", 2)


def test_missing_program_fails(tmp_path):
    with pytest.raises(Broke, match=r"nosuch\.py"):
        crash_processes(f"{tmp_path}/nosuch.py:life", folder=tmp_path)


def test_unreachable_store_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "1")
    program = tmp_path / "forgetful.py"
    program.write_text(FORGETFUL)
    with pytest.raises(Broke, match=r"did not end, even without a crash.*(?s:.*)StoreUnavailable"):
        crash_processes(f"{program}:life", folder=tmp_path, store=lambda _: "redis://127.0.0.1:1/0")


def test_wrong_arguments_fail(tmp_path):
    program = tmp_path / "forgetful.py"
    program.write_text(FORGETFUL)
    with pytest.raises(
        Broke, match=r"did not end, even without a crash.*(?s:.*)too many positional arguments"
    ):
        crash_processes(f"{program}:life", ["7"], folder=tmp_path)
