"""docs/scaling.md, "Several stores": a process with an Outlast on each of two stores, told to end once."""

import json
import signal
import subprocess
import sys

import pytest
from kubelet import until

from outlast import sync as blocking

pytestmark = pytest.mark.timeout(60)

PROGRAM = """
import asyncio, sys
from outlast import Outlast, step, workflow

@step
async def slow(name: str) -> str:
    print("begun", flush=True)
    await asyncio.sleep(1)
    return name

@workflow
async def work(name: str) -> str:
    return await slow(name)

async def main() -> None:
    one, two = sys.argv[1:]
    async with Outlast(one, worker=True, workflows=[work]) as first, Outlast(two, worker=True, workflows=[work]) as second:
        await first.submit(work("one"), id="same")
        await second.submit(work("two"), id="same")
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def drains(store: str) -> list[dict[str, object]]:
    told = subprocess.run(
        [sys.executable, "-m", "outlast", "drains", "--json", "--store", store],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return json.loads(told.stdout)["drains"]


def test_a_signal_drains_both_and_each_has_its_report(tmp_path):
    stores = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    (tmp_path / "program.py").write_text(PROGRAM)
    out = tmp_path / "out"
    with out.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, tmp_path / "program.py", *stores], cwd=tmp_path, stdout=file
        )
    try:
        until(lambda: out.read_text().count("begun") == 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(25) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert out.read_text().count("begun") == 2
    for store, result in zip(stores, ["one", "two"], strict=True):
        with blocking.Outlast(store) as app:
            assert app.result("same") == result
        [drain] = drains(store)
        assert (drain["reason"], drain["completed"]) == ("SIGTERM", 1)
