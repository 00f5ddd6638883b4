"""The pytest plugin replays the runs of a test and imports nothing early."""

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from outlast import receive, step, workflow
from outlast.testing import App
from support.pytest_runs import run_pytest

numbers: list[int] = []
executed: list[int] = []


def number() -> int:
    """Return another number at every call: what a workflow must not do."""
    numbers.append(len(numbers))
    return numbers[-1]


@step
async def add(n: int) -> int:
    executed.append(n)
    return n + 1


@workflow
async def steady(n: int) -> int:
    return await add(await add(n))


@workflow
async def other_arguments() -> int:
    return await add(number())


@workflow
async def other_end() -> int:
    await add(1)
    return number()


@workflow
async def more_steps() -> int:
    for _ in range(1 + number()):
        await add(1)
    return 1


@workflow
async def other_error() -> None:
    raise ValueError(f"number {number()}")


@workflow
async def waits_for_more() -> int:
    if number():
        await receive("more")
    return 1


@pytest.fixture(autouse=True)
def _fresh():
    numbers.clear()
    executed.clear()


def test_check_replay_passes_a_deterministic_run_and_executes_nothing():
    app = App()
    assert app.run(steady(1)) == 3
    app.check_replay()
    assert executed == [1, 2]


@pytest.mark.parametrize(
    ("unsteady", "says"),
    [
        (other_arguments, (r'step add#1({"n":1})', r'step add#1({"n":0})', "await add(number())")),
        (other_end, ("returns 1", "returns 0", "@workflow")),
        (more_steps, (r'step add#2({"n":1})', "nothing more", "await add(1)")),
        (other_error, ("raises ValueError: number 1", "raises ValueError: number 0", "@workflow")),
        (waits_for_more, ("waits", "returns 1", 'await receive("more")')),
    ],
)
def test_check_replay_names_the_difference_of_a_nondeterministic_run(unsteady, says):
    app = App()
    try:
        app.run(unsteady(), id="r-1")
    except ValueError:
        assert unsteady is other_error
    before = list(executed)
    with pytest.raises(AssertionError) as raised:
        app.check_replay()
    code, journal, source = says
    lines, first = inspect.getsourcelines(unsteady.fn)
    number = next(number for number, line in enumerate(lines, first) if source in line)
    head, *what, _ = str(raised.value).splitlines()
    assert head == f"run 'r-1' of workflow {unsteady.name} does not replay:"
    assert what == [
        f"  the code:    {code}",
        f"  the journal: {journal}",
        f"  at {__file__}:{number}",
    ]
    assert executed == before


TESTS = """
import itertools
import pytest
from outlast import step, workflow
from outlast.testing import App

count = itertools.count()

@step
async def add(n: int) -> int:
    return n + 1

@workflow
async def steady(n: int) -> int:
    return await add(n)

@workflow
async def unsteady() -> int:
    return await add(next(count))

def test_steady(outlast_app):
    assert outlast_app.run(steady(1)) == 2

def test_unsteady(outlast_app):
    outlast_app.run(unsteady())

@pytest.mark.outlast_no_replay
def test_accepted(outlast_app):
    outlast_app.run(unsteady())

def test_of_a_local_app():
    App().run(unsteady())

def test_that_fails_by_itself(outlast_app):
    outlast_app.run(unsteady())
    raise RuntimeError("its own")
"""


def test_plugin_fails_a_test_whose_run_diverges_unless_it_is_marked(tmp_path):
    out = run_pytest(tmp_path, TESTS)
    assert "3 failed, 2 passed" in out
    assert "FAILED test_agents.py::test_unsteady - Failed: run '" in out
    assert "FAILED test_agents.py::test_of_a_local_app - Failed: run '" in out
    assert "FAILED test_agents.py::test_that_fails_by_itself - RuntimeError: its own" in out


def test_replay_can_be_turned_off_for_all_tests(tmp_path):
    assert "1 failed, 4 passed" in run_pytest(tmp_path, TESTS, "-o", "outlast_replay=false")


def test_the_plugin_imports_nothing_of_outlast():
    code = "import outlast_pytest, sys; print([name for name in sys.modules if name.startswith('outlast.')])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out == "[]\n"


def test_entry_point_names_the_light_plugin_module():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"outlast": "outlast_pytest"}
