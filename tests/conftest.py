"""What the behaviour tests share: a world, which is all that outlives a process: a store and the time."""

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

from outlast.store.sqlite.store import SQLiteStore
from outlast.testing import App, VirtualClock
from outlast.testing.crash import Crash, _forget
from outlast.testing.empty import EmptyStore, empty_file
from places import HERE, place, pytest_collection_modifyitems  # noqa: F401 - a fixture and a hook
from servers import postgres_server, redis_server  # noqa: F401 - fixtures

_UNDERSTOOD = ("DATABASE_URL", "REDIS_URL", "REDIS_HOST", "STATE_DB_PATH", "SHUTDOWN_TIMEOUT")
for _name in list(os.environ):
    if _name in _UNDERSTOOD or (
        _name.upper().startswith("OUTLAST_") and not _name.startswith("OUTLAST_TEST_")
    ):
        del os.environ[
            _name
        ]  # Outlast understands them: a developer's own servers and settings are not for tests, nor for what they start

# The tests start hundreds of processes: each would compile all of Outlast again, which takes longer than all else that it does to begin.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell's `&` and nohup have them ignored, and every process that a test starts would inherit that.
for _signal in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.default_int_handler if _signal is signal.SIGINT else signal.SIG_DFL)

# No test needs a disk: what a process has written outlives it in memory too, and to sync it costs nothing there.
_MEMORY, _MEMORY_BYTES_MIN = Path("/dev/shm"), 2_000_000_000
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES_MIN:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

HEARTBEAT = 0.001
FOREVER = 1e7


class World:
    """A store (bytes in memory, or a file) and a clock. `app` is the process that is alive now.

    `restart()` is an orderly end and a new process, `die(...)` a pulled plug; no Python object survives either.
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
        """The store as another process sees it. In memory there is only one while a process lives."""
        if self.folder is not None:
            file = self.folder / "world.db"
            store = SQLiteStore(
                file if file.exists() else empty_file(file), clock=self.clock, heartbeat=HEARTBEAT
            )
        elif self._app is not None:
            store = self._app.store
        elif self._image is not None:
            return SQLiteStore.from_image(self._image, clock=self.clock)
        else:
            store = EmptyStore(None, clock=self.clock)
        store.open()
        self._opened.append(store)
        return store

    def another(self, **settings) -> App:
        """Another process on the same store, at the same time."""
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
        """To its end. A run that hangs is a TimeoutError at once: nothing but the time-out is left to jump to."""

        async def main(app):
            return await (await app.start(call, id=id)).result(timeout=FOREVER)

        try:
            return self.do(main)
        except TimeoutError:
            gc.collect()  # what hung may have left a task whose failure nobody saw: let it be logged here, not in pytest
            raise

    def do(self, action):
        return self.app.do(action)

    def restart(self, after: float = 0.01, **settings) -> App:
        """The process ends, another begins so many seconds later."""
        store = self.store
        if self.folder is None:
            self._image = store.image()
        store.close()
        self._app = None
        self.settings = settings
        self.clock.advance(after)
        return self.app

    def die(
        self, call, *, id: str = "run", after: float | None = None, until=None, gap: float = 0.01
    ) -> None:
        """Start the run and pull the plug: so many seconds later, or as soon as `until()` is true."""
        app, loop = self.app, self.clock.loop()

        async def main() -> None:
            await app.__aenter__()
            await app.start(call, id=id)
            if until is None:
                await asyncio.sleep(after or 0.0)
            else:
                while not until():
                    await asyncio.sleep(0.001)
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
        """What the kernel does at a death: locks are free, and nobody touches their files any more."""
        if self.folder is not None:
            self.store._presence._stop.set()
            self.store._presence.forget_in_child()
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
        """The finished journal once more, in a new process: the end it leads to. Nothing may be executed."""
        self.restart()
        self.store.reopen(id)
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
    world = World(None if request.param == "memory" else tmp_path)
    yield world
    world.close()


@pytest.fixture
def file_world(tmp_path):
    """Where two processes must see one store."""
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture(params=HERE)
def address(request, tmp_path):
    """A store for real time."""
    return "memory:" if request.param == "memory" else f"sqlite:///{empty_file(tmp_path / 'outlast.db')}"
