"""Fixtures that all folders share, and the environment in which the tests run.

`world` and `file_world` are for tests on the virtual clock, `address` is for tests in real time on one
process, `place` is a store that several processes share.
"""

import asyncio
import gc
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from outlast.store.sqlite.store import SQLiteStore
from outlast.testing import App, VirtualClock
from outlast.testing.crash import _forget
from outlast.testing.crash_points import Crash
from outlast.testing.store_hooks import reopen
from outlast.testing.store_images import EmptyStore, empty_file, image_of, open_image
from support.order import spread_long_files
from support.servers import postgres_server, redis_server  # noqa: F401 - fixtures
from support.stores import HERE, leave_for_make_stores, place  # noqa: F401 - a fixture

# Outlast reads these variables. A developer's servers and settings must reach neither the tests nor the
# programs that they start.
_UNDERSTOOD = ("DATABASE_URL", "REDIS_URL", "REDIS_HOST", "STATE_DB_PATH", "SHUTDOWN_TIMEOUT")
for _name in list(os.environ):
    if _name in _UNDERSTOOD or (
        _name.upper().startswith("OUTLAST_") and not _name.startswith("OUTLAST_TEST_")
    ):
        del os.environ[_name]

# The tests start hundreds of processes. Without bytecode each of them would compile all of Outlast.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell's `&` and nohup ignore these signals, and child processes would inherit that.
for _signal in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(
            _signal, signal.default_int_handler if _signal is signal.SIGINT else signal.SIG_DFL
        )

# Stores and servers live in memory: a killed process does not lose what it wrote there, and fsync is free.
# Six workers take up to 1.5 GB.
_MEMORY, _MEMORY_BYTES_MIN = Path("/dev/shm"), 3_000_000_000
if (
    "TMPDIR" not in os.environ
    and _MEMORY.is_dir()
    and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES_MIN
):
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

# Collection makes millions of objects that live as long as the session. The garbage collector would visit
# them again and again, during collection and in every full collection of a test.
gc.disable()

# Hypothesis must not judge the speed of the machine. `make test` repeats the same examples; `make soak`
# draws new ones.
_SOAK = "OUTLAST_TEST_PROPERTY_CASES" in os.environ
hypothesis_settings.register_profile(
    "outlast",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not _SOAK,
    max_examples=1000 if _SOAK else 50,
)
hypothesis_settings.load_profile("outlast")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_for_make_stores(config, items)
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = spread_long_files(items, workers)


def pytest_collection_finish() -> None:
    """Turn the garbage collector on again, for what is made from now on."""
    gc.freeze()
    gc.enable()


HEARTBEAT = 0.001
FOREVER = 1e7


async def reached(condition) -> None:
    """Wait on a virtual clock until `condition()` is true.

    The condition is asked after each round of the event loop. A timer for each virtual millisecond would
    cost thousands of rounds in a run that sleeps.
    """
    loop = asyncio.get_running_loop()
    run_once, is_met = loop._run_once, loop.create_future()

    def run_once_and_ask() -> None:
        run_once()
        if not is_met.done() and condition():
            is_met.set_result(None)

    if not condition():
        loop._run_once = run_once_and_ask
        await is_met


class World:
    """A store and a virtual clock: what outlives a process. `app` stands for the live process.

    With `folder` the store is a file there, without it an image in memory. `restart()` ends the process
    in order and starts another, `die()` crashes it. No Python object survives either of them.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self._image: bytes | None = None
        self._app: App | None = None
        self._others: list[App] = []
        self._opened: list[SQLiteStore] = []
        self.settings: dict = {}

    @property
    def app(self) -> App:
        if self._app is None:
            self._app = App(self.open(), clock=self.clock, **self.settings)
        return self._app

    def open(self) -> SQLiteStore:
        """Open the store as another process would. A store in memory is the live process's own."""
        if self.folder is not None:
            file = self.folder / "world.db"
            store = SQLiteStore(
                file if file.exists() else empty_file(file), clock=self.clock, heartbeat=HEARTBEAT
            )
        elif self._app is not None:
            store = self._app.store
        elif self._image is not None:
            return open_image(self._image, clock=self.clock)
        else:
            store = EmptyStore(clock=self.clock)
        store.open()
        self._opened.append(store)
        return store

    def another(self, **settings) -> App:
        """Return the app of a second process on the same store."""
        app = App(self.open(), clock=self.clock, **settings)
        self._others.append(app)
        return app

    @property
    def store(self) -> SQLiteStore:
        return self.app.store

    @property
    def executed(self) -> dict:
        return dict(self.app.executed)

    def run(self, call, *, id: str = "run"):
        """Start a run and return its result.

        A run that hangs raises TimeoutError at once: the virtual clock jumps to the time-out.
        """

        async def main(app):
            return await (await app.start(call, id=id)).result(timeout=FOREVER)

        try:
            return self.do(main)
        except TimeoutError:
            # The run may have left a task with an unseen failure. Log that here, not in the next test.
            gc.collect()
            raise

    def do(self, action):
        """Run `action(app)` in the live process."""
        return self.app.do(action)

    def restart(self, after: float = 0.01, **settings) -> App:
        """End the process in order and start another one `after` seconds later."""
        store = self.store
        if self.folder is None:
            self._image = image_of(store)
        store.close()
        self._app = None
        self.settings = settings
        self.clock.advance(after)
        return self.app

    def die(
        self, call, *, id: str = "run", after: float | None = None, until=None, gap: float = 0.01
    ) -> None:
        """Start a run and crash the process `after` seconds later, or as soon as `until()` is true.

        `until` may not depend on the time alone, which jumps. The next process starts `gap` seconds after
        the crash.
        """
        app, loop = self.app, self.clock.loop()

        async def main() -> None:
            await app.__aenter__()
            await app.start(call, id=id)
            if until is None:
                await asyncio.sleep(after or 0.0)
            else:
                await reached(until)
            raise Crash

        asyncio.set_event_loop(loop)
        try:
            with suppress(Crash):
                loop.run_until_complete(main())
        finally:
            asyncio.set_event_loop(None)
        _forget(loop, app)
        loop.close()
        self._pull()
        self.restart(gap)

    def _pull(self) -> None:
        """Do what the kernel does when a process dies: free its locks and stop their heartbeat."""
        if self.folder is not None:
            self.store._liveness._stop.set()
            self.store._liveness.forget_in_child()
            for lock in (self.folder / "world.db.d").glob("worker-*.lock"):
                os.utime(lock, (0, 0))

    def row(self, id: str = "run"):
        return self.store.run(id)

    def status(self, id: str = "run") -> str:
        return self.row(id).status

    def journal(self, id: str = "run") -> list:
        return self.store.journal(self.row(id).pk)

    def kinds(self, id: str = "run") -> list[str]:
        return [entry.kind for entry in self.journal(id)]

    def keys(self, id: str = "run") -> list[str]:
        return [entry.key for entry in self.journal(id)]

    def replays(self, call, *, id: str = "run"):
        """Replay the journal of a finished run in a new process. Return the result; execute nothing."""
        self.restart()
        reopen(self.store, id)
        try:
            return self.run(call, id=id)
        finally:
            assert self.executed == {}, "a replay executes nothing"

    def close(self) -> None:
        for app in (self._app, *self._others):
            if app is not None:
                app.store.close()
        for store in self._opened:
            store.close()


@pytest.fixture(params=HERE)
def world(request, tmp_path):
    """Yield a `World` whose store is in memory or a file. `make stores` runs each test on both."""
    world = World(None if request.param == "memory" else tmp_path)
    yield world
    world.close()


@pytest.fixture
def memory_world():
    """Yield a `World` in memory, for tests of what no store can change."""
    world = World(None)
    yield world
    world.close()


@pytest.fixture
def file_world(tmp_path):
    """Yield a `World` in a file, for tests in which two processes see one store."""
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture(params=HERE)
def address(request, tmp_path):
    """Return the address of a store for tests in real time, in memory or in a file."""
    return (
        "memory:"
        if request.param == "memory"
        else f"sqlite:///{empty_file(tmp_path / 'outlast.db')}"
    )
