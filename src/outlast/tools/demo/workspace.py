"""Where the demo happens: a store of its own, in this folder, and a world without anybody's settings."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from outlast.errors import OutlastError, SettingsError, StoreError
from outlast.settings.third_party_env import GRACE, STORES
from outlast.store.address import store_at
from outlast.store.commands import CHECKPOINT, SESSION
from outlast.store.private_files import lock
from outlast.store.protocol import Store
from outlast.store.rows import RunQuery, SessionQuery

QUEUE = "outlast-demo"
WORKFLOW = "research"
FILE = "outlast-demo.db"
DEATH_SECONDS = 2.0
RUNS_MAX = 100
"""A demo leaves three. A store with more than these is not looked through: it is somebody's."""
_OF_A_STORE = ("-wal", "-shm", ".d", "")
"""What the names of a store's files end in, after its own. The one that says whose they are goes last: a death in between leaves a store that the next
demo may remove."""


class DemoRefused(SettingsError):
    """The demo does not begin here, or not like this. Nothing was touched."""


class DemoFailed(OutlastError):
    """The demo could not be carried through: it says nothing of what it was to show."""


def address_of(path: Path) -> str:
    """Of a file, wherever a process's folder is."""
    return f"sqlite:///{quote(str(path.absolute()))}"


@contextmanager
def taken_turn(path: Path) -> Iterator[None]:
    """Nobody else makes room in this folder, while in the block. Of two demos that begin at the same moment neither would see the other: they would
    share a store, and wait for each other's runs. DemoRefused."""
    with ExitStack() as held:
        try:
            folder = os.open(path.absolute().parent, os.O_RDONLY)
            held.callback(os.close, folder)
            is_ours = lock(folder)
        except OSError:  # it cannot be opened, or its file system has no locks
            is_ours = True
        if not is_ours:
            raise DemoRefused(
                f"another demo begins in {path.absolute().parent} just now: try again in a moment."
            )
        yield


def make_room(path: Path) -> None:
    """Remove the store that an earlier demo has left. DemoRefused for anything else: it stays as it is."""
    if sys.platform == "win32":
        raise DemoRefused(
            "the demo stops and kills with the signals of POSIX systems: it does not run on Windows."
        )
    if not path.name:  # "", ".", "/": nothing could be beside it
        raise DemoRefused(f"{str(path)!r} is the name of a folder: --store-file names a file.")
    if not os.access(path.absolute().parent, os.W_OK):
        raise DemoRefused(
            f"nothing can be written in {path.absolute().parent}: begin in another folder."
        )
    files = [path.with_name(path.name + end) for end in _OF_A_STORE]
    if not any(os.path.lexists(file) for file in files):
        return
    _check(path, files)
    for file in files:
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)


def _check(path: Path, files: list[Path]) -> None:
    """DemoRefused unless they are a store that only demos have used, and that nobody uses now."""
    instead = "Name another with --store-file, or remove it yourself."
    if any(file.is_symlink() for file in files):
        raise DemoRefused(f"{path} is a symbolic link, or has one beside it. {instead}")
    if not path.is_file():
        raise DemoRefused(f"{path} is no file of a demo, or its file is gone. {instead}")
    store = store_at(address_of(path))
    try:
        there, ours = store.versions()
        if there != ours:
            raise DemoRefused(f"{path} is no store of this version of Outlast. {instead}")
        store.open()
        with closing(store):
            if not _is_a_demos(store):
                raise DemoRefused(
                    f"{path} has runs, queues or sessions that are not the demo's. {instead}"
                )
            if _is_lived_in(store):
                raise DemoRefused(
                    f"somebody works in {path}: another demo? Wait for its end, or name another with --store-file."
                )
    except StoreError as error:
        raise DemoRefused(f"{path} cannot be read as a store: {error} {instead}") from error


def _is_lived_in(store: Store) -> bool:
    """Whether a worker lives there. That one is dead is known after two of its heartbeats are missing."""
    until = time.monotonic() + DEATH_SECONDS
    while {worker.id for worker in store.workers()} - set(store.dead_workers()):
        if time.monotonic() > until:
            return True
        time.sleep(0.05)
    return False


def _is_a_demos(store: Store) -> bool:
    """Whether all that is in it is what a demo leaves: its few runs, and nothing that anybody has saved."""
    runs = store.runs(RunQuery(limit=RUNS_MAX + 1))
    if len(runs) > RUNS_MAX or any((row.queue, row.workflow) != (QUEUE, WORKFLOW) for row in runs):
        return False
    if any(
        queue.name != QUEUE for queue in store.queues()
    ):  # names stay: somebody's runs were here, and are pruned
        return False
    return not any(store.sessions(SessionQuery(space, limit=1)) for space in (SESSION, CHECKPOINT))


def environ_of(environ: Mapping[str, str], **more: str) -> dict[str, str]:
    """Of a process in the demo: without settings of Outlast's, whatever they are called, and without files of them. Nothing but the folder of its
    program is where modules come from."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.upper().startswith("OUTLAST_") and name not in (GRACE, *STORES)
    }
    return {
        **kept,
        "OUTLAST_ENV_FILE": "",
        "OUTLAST_SECRETS_DIR": "",
        "PYTHONSAFEPATH": "1",
        **more,
    }


@contextmanager
def alone() -> Iterator[None]:
    """This process has that environment too, in the block: it submits and sends as any program does."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environ_of(before))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
