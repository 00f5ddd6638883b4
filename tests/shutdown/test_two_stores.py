"""A process with an Outlast on each of two stores gets SIGTERM once (docs/scaling.md, "Several stores")."""

import signal

from outlast import sync as blocking
from support.processes import Program
from support.snapshots import read_snapshot

PROGRAM = """
import asyncio, sys
from pathlib import Path
from outlast import Outlast, step, workflow

@step
async def slow(name: str) -> str:
    print("begun", flush=True)
    while not Path("gate").exists():
        await asyncio.sleep(0.02)
    return name

@workflow
async def work(name: str) -> str:
    return await slow(name)

async def main() -> None:
    one, two = sys.argv[1:]
    options = {"worker": True, "workflows": [work], "grace": 600}
    async with Outlast(one, **options) as first, Outlast(two, **options) as second:
        await first.submit(work("one"), id="same")
        await second.submit(work("two"), id="same")
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_sigterm_drains_both_and_each_has_its_report(tmp_path):
    stores = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    (tmp_path / "program.py").write_text(PROGRAM)
    with Program.python(tmp_path / "program.py", *stores, folder=tmp_path) as program:
        program.wait_for_line("begun", times=2)
        program.terminate()
        for store in stores:
            program.wait_until(
                lambda store=store: any(
                    row["draining"] for row in read_snapshot(store).workers.values()
                )
            )
        (tmp_path / "gate").touch()
        assert program.wait() == -signal.SIGTERM
        assert program.lines == ["begun"] * 2
    for store, result in zip(stores, ["one", "two"], strict=True):
        with blocking.Outlast(store) as app:
            assert app.result("same") == result
            (report,) = app.drains()
        assert (report.reason, report.completed) == ("SIGTERM", 1)


LEAVING = """
import asyncio, sys
from pathlib import Path
from outlast import Outlast

async def clean_up() -> None:
    print("leaving", flush=True)
    while not Path("gate").exists():
        await asyncio.sleep(0.02)
    print("cleaned up", flush=True)

async def main() -> None:
    one, two = sys.argv[1:]
    options = {"grace": 600, "close_timeout": 600}
    async with Outlast(one, **options) as outer:
        outer.on_cleanup(lambda: print("outer cleaned up", flush=True))
        async with Outlast(two, **options) as inner:
            inner.on_cleanup(clean_up)

asyncio.run(main())
"""


def test_sigterm_does_not_interrupt_an_app_that_is_being_left(tmp_path):
    stores = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    (tmp_path / "program.py").write_text(LEAVING)
    with Program.python(tmp_path / "program.py", *stores, folder=tmp_path) as program:
        program.wait_for_line("leaving")
        program.terminate()
        program.wait_until(lambda: len(_drains_ended(stores[0])) == 1)
        (tmp_path / "gate").touch()
        assert program.wait() == -signal.SIGTERM
        assert program.lines == ["leaving", "cleaned up", "outer cleaned up"]
    for store in stores:
        assert len(_drains_ended(store)) == 1
        assert read_snapshot(store).workers == {}


def _drains_ended(store):
    with blocking.Outlast(store, signals=0) as app:
        return [report for report in app.drains() if report.seconds is not None]
