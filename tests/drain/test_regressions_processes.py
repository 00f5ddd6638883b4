"""What a review and a trial of the drain found broken once, as processes and the command line show it. Each stays kept."""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest
from kubelet import until

from outlast import Outlast, SettingsError, workflow
from outlast import sync as blocking
from outlast.cli import main as command_line

pytestmark = pytest.mark.timeout(60)


def program(node, text, *words, **settings):
    """A pod with a program of its own in it."""
    file = node.folder / "program.py"
    file.write_text(text)
    return node.pod([sys.executable, "-u", str(file), *words], store=node.address, **settings)


EACH = """
import hashlib
from outlast.sync import Outlast

with Outlast() as app:
    for item in app.each(["one", "two"], id="loop"):
        print("begun", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 100_000_000)  # in C, without the GIL
"""


def test_an_item_that_computes_to_the_end_of_its_process_is_given_to_nobody_before(node):
    pod = program(node, EACH, grace=2)
    until(lambda: "begun" in pod.out.read_text())
    said = []

    def take_over():
        with blocking.Outlast(node.address, signals=0, heartbeat=0.1, death_backoff=0.01) as app:
            for item in app.each(["one", "two"], id="loop"):
                try:
                    pod.process.wait(0.03)
                except subprocess.TimeoutExpired:
                    said.append("while it executes")
                said.append(item)
                break

    other = threading.Thread(target=take_over, daemon=True)
    other.start()
    time.sleep(0.3)
    assert said == []
    assert pod.wait(pod.signal(signal.SIGTERM)).seconds < 4
    other.join(20)
    assert said == ["one"]


TO_THREAD = """
import asyncio, os, time
from outlast import step, workflow

def tell(what):
    file = os.open("told", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{os.getpid()} {what}\\n".encode())
    os.close(file)

def work():
    for _ in range(1500):
        tell("thread")
        time.sleep(0.01)

@step
async def slow() -> None:
    tell("begins")
    await asyncio.to_thread(work)

@workflow(name="threaded")
async def threaded() -> None:
    await slow()
"""


def test_a_thread_of_to_thread_holds_its_run_until_its_process_is_gone(node):
    module = node.folder / "threaded.py"
    module.write_text(TO_THREAD)
    told = node.folder / "told"
    first = node.worker(module=str(module), grace=2).up()
    namespace = {"__name__": "threaded"}
    exec(TO_THREAD, namespace)
    node.submit({"run": namespace["threaded"]()})
    until(lambda: told.exists() and "thread" in told.read_text())
    second = node.worker(module=str(module), grace=2).up()
    assert not first.delete(grace=10).killed
    until(lambda: f"{second.pid} begins" in told.read_text())
    pids = [int(line.split()[0]) for line in told.read_text().splitlines()]
    assert pids == [first.pid] * pids.count(first.pid) + [second.pid] * pids.count(second.pid)


SIGTERM_ON_THE_WAY_OUT = """
import asyncio, os, signal, sys
from outlast import Outlast, step, workflow

where = sys.argv[1]

async def told_to_end():
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.3)

@step
async def slow() -> None:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        if where == "close":
            await told_to_end()
        raise

@workflow
async def flow() -> None:
    await slow()

async def main():
    async with Outlast() as app:
        if where == "cleanup":
            app.on_cleanup(told_to_end)
        await app.start(flow(), id="run")
        await asyncio.sleep(0.2)

asyncio.run(main())
"""


@pytest.mark.parametrize("where", ["close", "cleanup"])
def test_a_signal_on_the_way_out_is_a_drain_that_is_reported(node, where):
    pod = program(node, SIGTERM_ON_THE_WAY_OUT, where, grace=4)
    pod.wait(time.monotonic())
    assert node.ask("SELECT status, worker, deaths FROM runs") == [("queued", None, 0)]
    assert node.ask("SELECT id FROM workers") == []
    (report,) = node.drains()
    assert (report.reason, report.cut_short, report.pid) == ("SIGTERM", False, pod.pid)
    assert report.seconds is not None


AGENT = """
import asyncio
from outlast import Outlast

async def main():
    async with Outlast() as app:
        async def agent():
            while True:
                async with app.unit("turn"):
                    print("begun", flush=True)
                    await asyncio.sleep(0.5)

        try:
            print("returned", await app.run_until_drain(agent()), flush=True)
        except BaseException as error:
            print("raised", repr(error), flush=True)
            raise

asyncio.run(main())
"""


def test_run_until_drain_returns_none_when_a_signal_meets_a_unit(node):
    pod = program(node, AGENT, grace=4)
    until(lambda: "begun" in pod.out.read_text())
    pod.wait(pod.signal(signal.SIGTERM))
    assert pod.out.read_text().splitlines()[-1] == "returned None"


def test_a_program_that_is_asked_to_drain_and_goes_on_has_reported(node, capsys, monkeypatch):
    monkeypatch.setattr("outlast.cli.drain.LINGER_SECONDS", 0.2, raising=False)
    opened, end, stored = threading.Event(), threading.Event(), []

    async def main():
        async with Outlast(node.address, signals=0, worker=True, workflows=[idle], grace=5) as app:
            opened.set()
            await asyncio.to_thread(end.wait, 30)
            stored.extend(await app.drains())

    @workflow(name="idle")
    async def idle() -> None: ...

    program = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    program.start()
    try:
        assert opened.wait(20)
        with pytest.raises(SystemExit) as exit:
            command_line(["drain", "--store", node.address, "--why", "a deploy", "--wait", "--timeout", "10"])
        assert program.is_alive()
    finally:
        end.set()
        program.join(20)
    said = capsys.readouterr().err
    assert (exit.value.code or 0, "goes on" in said) == (0, True), said
    (report,) = stored
    assert (report.reason, report.seconds is not None) == ("a deploy", True)


def test_a_grace_that_is_no_number_is_named_by_the_variable_that_says_so(monkeypatch):
    monkeypatch.delenv("OUTLAST_GRACE", raising=False)
    monkeypatch.setenv("SHUTDOWN_TIMEOUT", "abc")
    with pytest.raises(SettingsError, match=r"^SHUTDOWN_TIMEOUT='abc'"):
        Outlast("memory:")
