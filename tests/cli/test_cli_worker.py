"""`outlast worker`: as a process, and what it refuses before it is one."""

from __future__ import annotations

import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager

import pytest

from outlast.cli import exits
from outlast.logs import JSONFormatter, TextFormatter
from outlast.store.address import store_at

PROGRAM = """
import asyncio, os
from pathlib import Path

from outlast import step, workflow


@step
async def note(word: str) -> str:
    with Path("notes").open("a") as file:
        file.write(f"{os.getpid()} {word}\\n")
    return word


@step
async def gate() -> None:
    Path("at-the-gate").touch()
    while not Path("open").exists():
        await asyncio.sleep(0.01)


@workflow
async def report(topic: str) -> str:
    return await note(topic)


@workflow
async def gated(topic: str) -> str:
    await note("first")
    await gate()
    return await note(topic)
"""

STUBBORN = """
import asyncio
from pathlib import Path

from outlast import step, workflow


@step
async def refuse() -> None:
    Path("stays").touch()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass


@workflow
async def stay() -> None:
    await refuse()
"""

WITH_APP = """
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from agent import report
from outlast import Outlast


async def handle(item):
    Path("consumed").write_text(item.payload)


@asynccontextmanager
async def lifespan(app):
    Path("lifespan").write_text("begun")
    task = asyncio.create_task(app.queue("mail").consume(handle))
    yield
    task.cancel()
    Path("lifespan").write_text("ended")


app = Outlast(lifespan=lifespan, concurrency=3, queues=["mine"])
other = Outlast(concurrency=4)
"""

FAST = {"OUTLAST_HEARTBEAT": "0.05", "OUTLAST_GRACE": "3", "OUTLAST_RAMP": "0", "PYTHONWARNINGS": "error"}


@pytest.fixture
def folder(outlast):
    (outlast.folder / "agent.py").write_text(PROGRAM)
    return outlast.folder


class Process:
    def __init__(self, folder, words):
        environ = {**os.environ, **FAST}
        environ.pop("OUTLAST_STORE", None)
        self.child = subprocess.Popen(
            [sys.executable, "-m", "outlast", "worker", *words],
            cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.first = self.child.stderr.readline()

    def signalled(self, number):
        self.child.send_signal(number)
        out, err = self.child.communicate(timeout=60)
        assert "Traceback" not in err
        return self.child.returncode, out, err


@contextmanager
def working(folder, *words):
    """A worker that is at work."""
    process = Process(folder, words or ("agent.py",))
    try:
        yield process
    finally:
        if process.child.poll() is None:
            process.child.kill()
            process.child.communicate()


def until(check, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return found


def row(folder, id, name="outlast.db"):
    store = store_at(f"sqlite:///{folder / name}")
    store.open()
    try:
        return store.run(id)
    finally:
        store.close()


def ended(folder, id, name="outlast.db"):
    return until(lambda: (found := row(folder, id, name)) and found.ended and found)


def notes(folder):
    return [line.split() for line in (folder / "notes").read_text().splitlines()]


# -- at work


def test_a_worker_executes_what_others_submit_and_ends_with_0_on_sigterm(folder, outlast):
    assert outlast("submit", "agent.py:report", "early", "--id", "r1").out == "r1\n"
    with working(folder) as worker:
        assert ended(folder, "r1").status == "done"
        outlast("submit", "agent.py:report", "late", "--id", "r2")
        assert ended(folder, "r2").value == '"late"'
        assert [pid for pid, _ in notes(folder)] == [str(worker.child.pid)] * 2
        [seen] = outlast("workers", "--json").json["workers"]
        assert (seen["pid"], seen["state"], seen["queues"]) == (worker.child.pid, "alive", ["default"])
        assert set(seen["workflows"]) == {"gated", "report"}
        code, out, _ = worker.signalled(signal.SIGTERM)
    assert (code, out) == (exits.OK, "")
    assert outlast("workers", "--json").json["workers"] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, exits.OK), (signal.SIGINT, exits.INTERRUPTED)])
def test_a_signal_gives_the_runs_back_and_another_worker_goes_on(folder, outlast, number, code):
    outlast("submit", "agent.py:gated", "last", "--id", "r1")
    with working(folder) as first:
        until((folder / "at-the-gate").exists)
        assert first.signalled(number)[0] == code
    given_back = row(folder, "r1")
    assert (given_back.status, given_back.worker, given_back.interruptions) == ("queued", None, 1)
    (folder / "open").touch()
    with working(folder) as second:
        assert ended(folder, "r1").value == '"last"'
        assert notes(folder) == [[str(first.child.pid), "first"], [str(second.child.pid), "last"]]


def test_the_runs_of_a_killed_worker_are_taken_over_by_one_that_is_alive(folder, outlast):
    outlast("submit", "agent.py:gated", "last", "--id", "r1")
    with working(folder) as first:
        until((folder / "at-the-gate").exists)
        with working(folder) as second:
            first.child.kill()
            first.child.communicate()
            (folder / "open").touch()
            assert ended(folder, "r1").status == "done"
            assert notes(folder)[-1] == [str(second.child.pid), "last"]
            code, _, err = second.signalled(signal.SIGTERM)
    assert code == 0
    assert "dead workers" in err
    assert "its worker died" in outlast("show", "r1").out


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_worker_whose_store_was_removed_ends_so_that_it_can_be_started_on_what_is_there_now(folder, kind):
    name = {"sqlite": "outlast.db", "file": "state"}[kind]
    with working(
        folder, "agent.py", "--store", {"sqlite": "sqlite:///", "file": "file:"}[kind] + name
    ) as worker:
        (folder / name).rename(folder / "elsewhere")
        _, err = worker.child.communicate(timeout=60)
    assert worker.child.returncode == exits.FAILED
    assert "removed or replaced while in use" in err.splitlines()[-2]
    assert "Traceback" not in err


def test_a_worker_whose_store_was_removed_ends_though_a_step_refuses_to(folder, outlast, monkeypatch):
    (folder / "stubborn.py").write_text(STUBBORN)
    monkeypatch.setenv("OUTLAST_CLOSE_TIMEOUT", "0.1")
    monkeypatch.setenv("OUTLAST_LEASE", "1")
    outlast("submit", "stubborn.py:stay", "--id", "r1")
    with working(folder, "stubborn.py") as worker:
        until((folder / "stays").exists)
        (folder / "outlast.db").rename(folder / "elsewhere")
        _, err = worker.child.communicate(timeout=60)
    assert worker.child.returncode == exits.FAILED
    assert "removed or replaced while in use" in err.splitlines()[-2]
    assert "Traceback" not in err


def test_a_worker_takes_only_from_its_queues(folder, outlast):
    outlast("submit", "agent.py:report", "one", "--id", "r1", "--queue", "one")
    outlast("submit", "agent.py:report", "two", "--id", "r2", "--queue", "two")
    outlast("submit", "agent.py:report", "three", "--id", "r3")
    with working(folder, "agent.py", "--queue", "one", "--queue", "two", "--concurrency", "7") as worker:
        assert ended(folder, "r1").status == ended(folder, "r2").status == "done"
        [seen] = outlast("workers", "--json").json["workers"]
        assert (seen["queues"], seen["concurrency"]) == (["one", "two"], 7)
        worker.signalled(signal.SIGTERM)
    assert row(folder, "r3").status == "queued"


def test_a_worker_may_be_given_several_modules_and_another_store(folder, outlast):
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "more.py").write_text(
        "from outlast import workflow\n\n\n@workflow\nasync def more() -> str:\n    return 'more'\n\n\n"
        "class Group:\n    @workflow\n    async def inner() -> str:\n        return 'inner'\n"
    )
    address = ("--store", "sqlite:///other.db")
    outlast("submit", "pkg.more:more", "--id", "r1", *address)
    outlast("submit", "pkg.more:Group.inner", "--id", "r2", *address)
    outlast("submit", "agent.py:report", "x", "--id", "r3", *address)
    with working(folder, "pkg.more", "agent.py", *address):
        for id in ("r1", "r2", "r3"):
            assert ended(folder, id, "other.db").status == "done"
    assert not (folder / "outlast.db").exists()


def test_what_a_worker_does_not_know_waits_and_is_reported(folder, outlast):
    (folder / "newer.py").write_text(
        "from outlast import workflow\n\n\n@workflow\nasync def newest() -> int:\n    return 1\n"
    )
    outlast("submit", "newer.py:newest", "--id", "r1")
    with working(folder) as old:
        warning = json.loads(old.child.stderr.readline())
        assert (warning["level"], warning["workflow"]) == ("warning", "newest")
        assert (
            "runs of newest are ready, and no living worker that takes from this queue knows it"
            in outlast("queues").out
        )
        with working(folder, "newer.py"):
            assert ended(folder, "r1").value == "1"


# -- an app in the module


@pytest.mark.parametrize("target", ["shop.py", "shop.py:app", "shop:app"])
def test_an_app_brings_its_settings_and_its_lifespan(folder, outlast, target):
    (folder / "shop.py").write_text(WITH_APP)
    outlast("submit", "agent.py:report", "x", "--id", "r1", "--queue", "mine")
    with working(folder, target) as worker:
        assert ended(folder, "r1").status == "done"
        assert (folder / "lifespan").read_text() == "begun"
        [seen] = outlast("workers", "--json").json["workers"]
        assert seen["concurrency"] == 3
        assert "mine" in seen["queues"]
        assert seen["workflows"] == ["report"], "it was imported there"
        assert worker.signalled(signal.SIGTERM)[0] == 0
    assert (folder / "lifespan").read_text() == "ended"


def test_the_command_line_wins_over_the_app(folder, outlast):
    (folder / "shop.py").write_text(WITH_APP)
    outlast("submit", "agent.py:report", "x", "--id", "r1", "--store", "sqlite:///other.db")
    words = ("shop.py", "--queue", "default", "--concurrency", "5", "--store", "sqlite:///other.db")
    with working(folder, *words) as worker:
        assert ended(folder, "r1", "other.db").status == "done"
        assert json.loads(worker.first)["concurrency"] == 5
    assert not (folder / "outlast.db").exists()


def test_another_app_can_be_named(folder):
    (folder / "shop.py").write_text(WITH_APP)
    with working(folder, "shop.py:other") as worker:
        assert json.loads(worker.first)["concurrency"] == 4
    assert not (folder / "lifespan").exists()


def test_an_app_without_workflows_consumes_items(folder):
    (folder / "shop.py").write_text(WITH_APP.replace("from agent import report\n", ""))
    with working(folder, "shop.py") as worker:
        put = "import asyncio\nfrom outlast import Outlast\n\nasync def main():\n    async with Outlast() as app:\n        await app.queue('mail').put('hello')\n\nasyncio.run(main())\n"
        subprocess.run([sys.executable, "-c", put], cwd=folder, check=True, timeout=60)
        until(lambda: (folder / "consumed").exists() and (folder / "consumed").read_text())
        assert (folder / "consumed").read_text() == "hello"
        assert worker.signalled(signal.SIGTERM)[0] == 0


def test_a_lifespan_that_fails_ends_the_worker_and_leaves_none_behind(folder, outlast):
    (folder / "bad.py").write_text(
        "from contextlib import asynccontextmanager\nfrom agent import report\nfrom outlast import Outlast\n\n"
        "@asynccontextmanager\nasync def lifespan(app):\n    raise RuntimeError('no database')\n    yield\n\n"
        "app = Outlast(lifespan=lifespan)\n"
    )
    with working(folder, "bad.py") as worker:
        assert worker.child.communicate(timeout=60) == ("", "")
    assert worker.child.returncode == exits.FAILED
    assert json.loads(worker.first)["error"].endswith("RuntimeError: no database")
    assert outlast("workers", "--json").json["workers"] == []


# -- refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Missing argument"),
        (["absent.py"], "there is no file 'absent.py' here"),
        (["absent"], "there is no module 'absent'"),
        (["absent.mod:app"], "there is no module 'absent.mod'"),
        (["agent.py:"], "is not MODULE or MODULE:APP"),
        ([":app"], "is not MODULE or MODULE:APP"),
        (["agent.py:app"], "'app' is not an Outlast object in agent.py. There: none."),
        (["agent.py:report"], "'report' is a workflow. A worker takes all of a module: `outlast worker agent.py`"),
        (["empty.py"], "there is nothing to work on in empty.py"),
        (["empty.py:bare"], "there is nothing to work on in empty.py:bare"),
        (["synced.py"], "is an Outlast of outlast.sync"),
        (["agent.py", "twice.py"], "two workflows have the name 'report'"),
        (["one.py", "two.py"], "a worker has one Outlast object, and there are 2: in one.py, two.py"),
        (["agent.py", "--queue", ""], "queue name must be a text"),
        (["agent.py", "--queue", "a/b"], "contains '/' or '#'"),
        (["agent.py", "--queue", "a,b"], "comma"),
        (["agent.py", "--concurrency", "0"], "greater than or equal to 1"),
        (["agent.py", "--log", "xml"], "xml"),
        (["agent.py", "--store", "mysql://x"], "no store answers to"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_exits_2_and_makes_no_store(outlast, words, message):
    files = {
        "empty.py": "from outlast import Outlast\nbare = Outlast()\n",
        "synced.py": "from outlast.sync import Outlast\napp = Outlast()\n",
        "twice.py": "from outlast import workflow\n\n@workflow\nasync def report(): ...\n",
        "one.py": "from agent import report\nfrom outlast import Outlast\napp = Outlast()\n",
        "two.py": "from agent import report\nfrom outlast import Outlast\napp = Outlast()\n",
    }
    for name, text in files.items():
        (outlast.folder / name).write_text(text)
    answer = outlast("worker", *words)
    assert answer.code == 2
    assert message in " ".join(answer.err.split())
    assert not outlast.db.exists()


def test_a_module_that_cannot_be_imported_shows_where(outlast):
    (outlast.folder / "broken.py").write_text("raise ValueError('\\x1b[31mred')\n")
    answer = outlast("worker", "broken.py")
    assert answer.code == 1
    assert "outlast: broken.py could not be imported: ValueError: \\e[31mred" in answer.err
    assert not outlast.db.exists()


def test_a_store_of_this_process_alone_is_refused(outlast):
    answer = outlast("worker", "agent.py", "--store", "memory:")
    assert answer.code == 1
    assert "lives and ends with the process" in answer.err


def test_a_store_that_cannot_be_used_exits_75(outlast, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.2")
    monkeypatch.setenv("OUTLAST_STORE", outlast.away)
    assert outlast("worker", "agent.py").code == 75


# -- logs


def record(message="claimed %s", args=("it",), **extra):
    made = logging.LogRecord("outlast.worker", logging.INFO, __file__, 1, message, args, None)
    made.created = 1_700_000_000.25
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_a_worker_in_a_pipe_logs_json_and_text_if_asked(folder):
    with working(folder) as worker:
        first = json.loads(worker.first)
        assert (first["level"], first["logger"], first["event"]) == ("info", "outlast.worker", "working")
        assert first["workflows"] == ["gated", "report"]
    with working(folder, "agent.py", "--log", "text") as worker:
        assert " INFO " in worker.first
        assert "concurrency=20" in worker.first


def test_a_program_that_has_set_up_logging_keeps_its_own(folder):
    (folder / "logged.py").write_text(
        "import logging\nfrom agent import report\nlogging.basicConfig(format='mine %(message)s', level='INFO')\n"
    )
    with working(folder, "logged.py") as worker:
        assert worker.first == "mine working\n"
    with working(folder, "logged.py", "--log", "json") as worker:
        assert json.loads(worker.first)["event"] == "working"


def test_a_json_line_has_what_is_known_and_nothing_else():
    made = record(
        event="claimed",
        run="r1",
        worker="w1",
        fence=7,
        queue="q",
        workflow="w",
        status="done",
        seconds=0.25,
        x=1,
    )
    assert json.loads(JSONFormatter().format(made)) == {
        "time": "2023-11-14T22:13:20.250000Z", "level": "info", "logger": "outlast.worker", "event": "claimed",
        "message": "claimed it", "run": "r1", "workflow": "w", "status": "done", "worker": "w1", "fence": 7, "queue": "q",
        "seconds": 0.25,
    }  # fmt: skip


def test_a_text_line_has_them_as_key_and_value():
    line = TextFormatter().format(record(run="r 1", worker="w1", fence=7, seconds=0.25, queues=["a", "b"]))
    assert line == (
        '2023-11-14 22:13:20.250  INFO     outlast.worker  claimed it run="r 1" worker=w1 fence=7 queues=["a", "b"] seconds=0.25'
    )


@pytest.mark.parametrize("formatter", [JSONFormatter(), TextFormatter()])
def test_a_log_line_has_no_power_over_a_terminal(formatter):
    hostile = "\x1b]0;owned\x07\r\nline2 \u202e\x9b31m\x7f"
    try:
        raise ValueError(hostile)
    except ValueError:
        trace = sys.exc_info()
    made = record(hostile, (), run=hostile, queue=hostile, event=hostile)
    assert "\n" not in formatter.format(made)
    made.exc_info = trace
    line = formatter.format(made)
    assert all(char.isprintable() or char == "\n" for char in line)
    assert "ValueError" in line
    if isinstance(formatter, JSONFormatter):
        assert json.loads(line)["run"] == hostile


def test_a_record_with_odd_extras_is_still_one_line():
    made = record("%d", ("x",), run=object, seconds=float("nan"), fence=None, workers={"a"})
    document = json.loads(JSONFormatter().format(made))
    assert document["message"].startswith("%d (TypeError")
    assert document["workers"] == ["a"]
    assert document["seconds"] is None
    assert "fence" not in document


def test_submit_goes_to_the_store_and_by_the_settings_of_the_modules_app(folder, outlast):
    (folder / "svc.py").write_text(
        "from outlast import Outlast, workflow\n\n\n@workflow\nasync def job() -> int:\n    return 1\n\n\n"
        "app = Outlast('sqlite:///svc.db', workflows=[job], max_attempts=2)\n"
    )
    outlast("submit", "svc.py:job", "--id", "theirs")
    shown = outlast("show", "theirs", "--json", "--store", "sqlite:///svc.db").json
    assert shown["run"]["id"] == "theirs"
    with closing(sqlite3.connect(folder / "svc.db")) as db:
        assert db.execute("SELECT attempts_max FROM runs").fetchone() == (2,)
    assert not (folder / "outlast.db").exists()
    outlast("submit", "svc.py:job", "--id", "elsewhere", "--store", "sqlite:///other.db")
    assert (folder / "other.db").exists()
