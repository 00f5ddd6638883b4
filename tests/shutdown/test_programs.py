"""Programs with an Outlast in them that get SIGTERM, or `outlast drain`, in the middle of something."""

import asyncio
import sys
import threading
import time

import pytest

from outlast import Outlast, SettingsError, workflow
from outlast import sync as blocking
from outlast.cli import main as command_line
from support.waiting import WAIT_SECONDS


def program(node, text, *words, **settings):
    """Start a pod with a program of its own in it."""
    file = node.folder / "program.py"
    file.write_text(text)
    return node.pod([sys.executable, "-u", str(file), *words], store=node.address, **settings)


EACH = """
import hashlib, threading, time
from outlast.sync import Outlast

def show_that_it_lives():
    with open("alive", "a") as file:
        while True:
            print(time.monotonic(), file=file, flush=True)
            time.sleep(0.02)

threading.Thread(target=show_that_it_lives, daemon=True).start()
with Outlast() as app:
    for item in app.each(["one", "two"], id="loop"):
        print("begun", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2_000_000_000)  # in C, without the GIL
"""


def test_an_item_that_computes_until_its_process_ends_is_not_given_to_another(node):
    pod = program(node, EACH, grace=1.5)
    pod.wait_for_line("begun")
    taken = []

    def take_over():
        with blocking.Outlast(node.address, signals=0, heartbeat=0.1, death_backoff=0.01) as app:
            for item in app.each(["one", "two"], id="loop"):
                taken.append((item, time.monotonic()))
                break

    other = threading.Thread(target=take_over, daemon=True)
    other.start()
    pod.end()
    other.join(WAIT_SECONDS)
    ((item, at),) = taken
    last = float((node.folder / "alive").read_text().splitlines()[-1])
    assert (item, at > last) == ("one", True), "it was taken while its process computed"


TO_THREAD = """
import asyncio, os, time
from outlast import step, workflow

def tell(what):
    file = os.open("told", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{os.getpid()} {what}\\n".encode())
    os.close(file)

def work():
    while True:
        tell("thread")
        time.sleep(0.02)

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
    first = node.worker(module=str(module), grace=1).up()
    namespace = {"__name__": "threaded"}
    exec(TO_THREAD, namespace)
    node.submit({"run": namespace["threaded"]()})
    first.wait_until(lambda: told.exists() and "thread" in told.read_text())
    second = node.worker(module=str(module)).up()
    first.end()
    second.wait_until(lambda: f"{second.pid} begins" in told.read_text())
    pids = [int(line.split()[0]) for line in told.read_text().splitlines() if line.count(" ") == 1]
    assert pids == [first.pid] * pids.count(first.pid) + [second.pid] * pids.count(second.pid)


SIGTERM_ON_THE_WAY_OUT = """
import asyncio, os, signal, sys
from outlast import Outlast, step, workflow

where = sys.argv[1]
app = Outlast()

async def send_sigterm():
    os.kill(os.getpid(), signal.SIGTERM)
    while not await app.drains():  # until the store knows of it
        await asyncio.sleep(0.01)

@step
async def slow() -> None:
    begun.set()
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        if where == "close":
            await send_sigterm()
        raise

@workflow
async def flow() -> None:
    await slow()

async def main():
    global begun
    begun = asyncio.Event()
    async with app:
        if where == "cleanup":
            app.on_cleanup(send_sigterm)
        await app.start(flow(), id="run")
        await begun.wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("where", ["close", "cleanup"])
def test_sigterm_while_a_program_closes_is_a_drain_with_a_report(node, where):
    pod = program(node, SIGTERM_ON_THE_WAY_OUT, where, close_timeout=100)
    pod.wait()
    assert node.ask("SELECT status, worker, deaths FROM runs") == [("queued", None, 0)], (
        pod.describe()
    )
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
                    await asyncio.sleep(0.1)

        try:
            print("returned", await app.run_until_drain(agent()), flush=True)
        except BaseException as error:
            print("raised", repr(error), flush=True)
            raise

asyncio.run(main())
"""


def test_run_until_drain_returns_none_when_sigterm_comes_in_a_unit(node):
    pod = program(node, AGENT)
    pod.wait_for_line("begun")
    pod.end()
    assert pod.lines[-1] == "returned None"


def test_a_program_that_outlast_drain_drained_has_reported_and_goes_on(node, capsys, monkeypatch):
    monkeypatch.setattr("outlast.cli.drain.LINGER_SECONDS", 0.2)
    opened, end, stored = threading.Event(), threading.Event(), []

    async def main():
        async with Outlast(
            node.address, signals=0, worker=True, workflows=[idle], grace=600
        ) as app:
            opened.set()
            await asyncio.to_thread(end.wait, WAIT_SECONDS)
            stored.extend(await app.drains())

    @workflow(name="idle")
    async def idle() -> None: ...

    program = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    program.start()
    try:
        assert opened.wait(WAIT_SECONDS)
        with pytest.raises(SystemExit) as exit:
            command_line(
                [
                    "drain",
                    "--store",
                    node.address,
                    "--why",
                    "a deploy",
                    "--wait",
                    "--timeout",
                    "100",
                ]
            )
        assert program.is_alive()
    finally:
        end.set()
        program.join(WAIT_SECONDS)
    said = capsys.readouterr().err
    assert (exit.value.code or 0, "keeps running" in said) == (0, True), said
    (report,) = stored
    assert report.reason.startswith("a deploy (by os:")
    assert report.seconds is not None


def test_an_invalid_grace_is_reported_with_the_name_of_its_variable(monkeypatch):
    monkeypatch.delenv("OUTLAST_GRACE", raising=False)
    monkeypatch.setenv("SHUTDOWN_TIMEOUT", "abc")
    with pytest.raises(SettingsError, match=r"^SHUTDOWN_TIMEOUT='abc'"):
        Outlast("memory:")
