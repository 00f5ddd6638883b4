"""The determinism check finds nondeterministic calls in workflow source."""

import logging
import random as chance
import time
from datetime import datetime
from pathlib import Path
from textwrap import dedent

import pytest

from outlast import now, random, step, workflow
from outlast.execution import determinism
from outlast.execution.determinism import check_source

HEADER = """
import asyncio, functools, os, random, secrets, socket, subprocess, time, uuid
import datetime as dt
import numpy as np
import outlast as ol
import requests, httpx
from datetime import datetime
from pathlib import Path
from outlast import effect, now, step, sync, workflow
from outlast import random as drawn
from time import monotonic as clock
"""


def found(tmp_path: Path, body: str, header: str = HEADER) -> list[str]:
    file = tmp_path / "agents.py"
    file.write_text(header + dedent(body))
    return [f"{one.call} -> {one.instead}" for one in check_source(file)[1]]


CALLS = {
    "time.time()": "time.time() -> now()",
    "clock()": "time.monotonic() -> now()",
    "datetime.now()": "datetime.datetime.now() -> now()",
    "dt.datetime.utcnow()": "datetime.datetime.utcnow() -> now()",
    "dt.date.today()": "datetime.date.today() -> now()",
    "time.sleep(1)": "time.sleep() -> sleep()",
    "random.choice([1])": "random.choice() -> random()",
    "random.Random()": "random.Random() -> random()",
    "np.random.rand(3)": "numpy.random.rand() -> random()",
    "uuid.uuid4()": "uuid.uuid4() -> uuid()",
    "secrets.token_hex()": "secrets.token_hex() -> uuid() or a step",
    "os.urandom(8)": "os.urandom() -> a step",
    "open('x')": "open() -> a step",
    "Path('x').read_text()": "pathlib.Path(…).read_text() -> a step",
    "requests.get('x')": "requests.get() -> a step",
    "httpx.get('x')": "httpx.get() -> a step",
    "socket.create_connection(('h', 1))": "socket.create_connection() -> a step",
    "subprocess.run(['x'])": "subprocess.run() -> a step",
}


@pytest.mark.parametrize(("call", "says"), CALLS.items(), ids=CALLS)
def test_nondeterministic_call_is_reported_with_its_replacement(tmp_path, call, says):
    assert found(tmp_path, f"@workflow\nasync def report() -> None:\n    {call}\n") == [says]


@pytest.mark.parametrize(
    "call",
    [
        "now()",
        "drawn()",
        "ol.uuid()",
        "os.environ['HOME']",
        "asyncio.sleep(1)",
        "asyncio.get_running_loop().time()",
        "uuid.uuid5(uuid.NAMESPACE_DNS, 'x')",
        "random.Random(7)",
        "secrets.compare_digest('a', 'b')",
        "datetime.fromisoformat('2026-01-01')",
        "time.time()  # outlast: ignore",
        "time.time",
    ],
)
def test_deterministic_call_is_not_reported(tmp_path, call):
    assert found(tmp_path, f"@workflow\nasync def report() -> None:\n    {call}\n") == []


def test_helpers_of_the_same_file_are_followed_and_steps_are_not(tmp_path):
    says = found(
        tmp_path,
        """
        @step
        async def fetch() -> float:
            return time.time()

        @effect(timeout=3)
        async def pay() -> None:
            open("ledger")

        @made_elsewhere
        def unknown() -> None:
            open("x")

        def never_called() -> None:
            open("x")

        @functools.cache
        def deep() -> str:
            return str(uuid.uuid4())

        def helper() -> str:
            return deep()

        @workflow
        async def report() -> None:
            @step
            def local() -> None:
                open("x")

            def inner() -> float:
                return time.perf_counter()

            await fetch(); await pay(); unknown(); helper(); inner(); local()
        """,
    )
    assert says == ["uuid.uuid4() -> uuid()", "time.perf_counter() -> now()"]


def test_local_name_is_not_mistaken_for_a_module(tmp_path):
    says = found(
        tmp_path,
        """
        @workflow
        async def report(open: object, time: object) -> None:
            random = 3
            open("x"); time.time(); random.choice([1])
            for requests in []:
                requests.get("x")
        """,
    )
    assert says == []


@pytest.mark.parametrize(
    "defined",
    [
        "@ol.workflow(name='x')\nasync def report() -> None:\n    time.time()\n",
        "@sync.workflow\ndef report() -> None:\n    time.time()\n",
        "def report() -> None:\n    time.time()\nmade = workflow(report)\n",
        "def make():\n    import time as t\n    @workflow\n    async def report():\n        t.time()\n    return report\n",
    ],
)
def test_a_workflow_is_recognised_however_it_is_made(tmp_path, defined):
    assert found(tmp_path, defined) == ["time.time() -> now()"]


@step
async def price(n: float) -> float:
    return n


def stamp() -> str:
    return datetime.now().isoformat()


@workflow
async def unsafe() -> str:
    await price(0.0 * chance.random())
    return stamp()


@workflow
async def safe() -> float:
    return await price(random()) + now().year


def warnings_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_the_first_execution_warns_once_and_names_file_line_and_what_to_use(world, caplog):
    unsafe.checked = False
    for id in ("one", "two"):
        world.run(unsafe(), id=id)
    (said,) = warnings_of(caplog)
    assert said.startswith("Workflow unsafe calls ")
    assert (
        f"datetime.datetime.now() at {__file__}:{stamp.__code__.co_firstlineno + 1} (use now() instead)"
        in said
    )
    assert f"random.random() at {__file__}:" in said


def test_a_workflow_that_is_safe_is_executed_without_a_warning(world, caplog):
    world.run(safe())
    assert warnings_of(caplog) == []


def test_the_check_can_be_turned_off(world, caplog):
    unsafe.checked = False
    world.settings = {"check_workflows": 0}
    world.run(unsafe())
    assert warnings_of(caplog) == []


def test_a_workflow_without_source_is_executed_without_a_warning(world, caplog):
    scope: dict = {"time": time}
    exec("async def report() -> float:\n    return time.time() * 0\n", scope)
    assert world.run(workflow(scope["report"])()) == 0
    assert warnings_of(caplog) == []


def test_a_parser_that_fails_does_not_stop_the_run(memory_world, monkeypatch):
    """CPython 3.11 raises SystemError if two threads parse at the same time."""

    def parse(*_: object, **__: object) -> None:
        raise SystemError("AST constructor recursion depth mismatch")

    determinism._parsed.cache_clear()
    monkeypatch.setattr(determinism.ast, "parse", parse)
    safe.checked = False
    try:
        assert memory_world.run(safe()) > 0
    finally:
        determinism._parsed.cache_clear()
