"""Prepare where the demo runs: its own store in this folder, without the user's settings."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from outlast.errors import OutlastError, SettingsError, StoreError
from outlast.settings.third_party_env import GRACE, STORES
from outlast.store.address import store_at
from outlast.store.commands import CHECKPOINT, SESSION
from outlast.store.protocol import Store
from outlast.store.rows import RunQuery
from outlast.store.session_rows import SessionQuery

QUEUE = "outlast-demo"
WORKFLOW = "research"
DEATH_SECONDS = 2.0
RUNS_MAX = 100
"""A demo leaves three runs. A store with more than this many is a user's and is not inspected."""
SUFFIXES = ("-wal", "-shm", ".d", "")
"""Suffixes of a store's files.

The file that identifies the store comes last. If the process dies in between, the next demo may
still remove the store.
"""


class DemoRefused(SettingsError):
    """The demo refuses to start in this place or with these options. Nothing was touched."""


class DemoFailed(OutlastError):
    """The demo could not finish. This says nothing about what it was meant to show."""


def address_of(path: Path) -> str:
    return f"sqlite:///{quote(str(path))}"


def make_folder(path: Path) -> None:
    """Remove the store that an earlier demo left. Raise DemoRefused for anything else, and keep it.

    `path` may be relative.
    """
    folder = path.absolute().parent
    if sys.platform == "win32":
        raise DemoRefused("the demo needs POSIX signals and does not run on Windows.")
    # For "", "." or "/" nothing could lie beside it.
    if not path.name:
        raise DemoRefused(f"{str(path)!r} is a folder. Name a file with --store-file.")
    if not os.access(folder, os.W_OK):
        raise DemoRefused(f"{folder} is not writable. Start the demo in another folder.")
    files = [path.with_name(path.name + suffix) for suffix in SUFFIXES]
    if any(os.path.lexists(file) for file in files):
        _check(path, files)
    for file in files:
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)


def _check(path: Path, files: list[Path]) -> None:
    """Raise DemoRefused unless only demos used this store and no worker uses it now."""
    instead = "Name another file with --store-file, or remove this one yourself."
    if any(file.is_symlink() for file in files):
        raise DemoRefused(f"{path} is a symbolic link, or has one beside it. {instead}")
    if not path.is_file():
        raise DemoRefused(f"{path} is not the store of a demo. {instead}")
    store = store_at(address_of(path.absolute()))
    try:
        there, ours = store.versions()
        if there != ours:
            raise DemoRefused(f"{path} is not a store of this version of Outlast. {instead}")
        store.open()
        with closing(store):
            if not _is_a_demos(store):
                what = "has runs, queues or sessions that are not the demo's"
                raise DemoRefused(f"{path} {what}. {instead}")
            if _is_in_use(store):
                wait = "Wait for it to end, or name another file with --store-file."
                raise DemoRefused(f"{path} is in use, perhaps by another demo. {wait}")
    except StoreError as error:
        raise DemoRefused(f"{path} cannot be read as a store: {error} {instead}") from error


def _is_in_use(store: Store) -> bool:
    """Return whether a live worker uses the store. A death shows after two missed heartbeats."""
    until = time.monotonic() + DEATH_SECONDS
    while {worker.id for worker in store.workers()} - set(store.dead_workers()):
        if time.monotonic() > until:
            return True
        time.sleep(0.05)
    return False


def _is_a_demos(store: Store) -> bool:
    """Return whether the store has only what a demo leaves: a few runs and no saved sessions."""
    runs = store.runs(RunQuery(limit=RUNS_MAX + 1))
    if len(runs) > RUNS_MAX or any((row.queue, row.workflow) != (QUEUE, WORKFLOW) for row in runs):
        return False
    # Queue names outlive their runs: a user's runs were here and have been pruned.
    if any(queue.name != QUEUE for queue in store.queues()):
        return False
    return not any(store.sessions(SessionQuery(space, limit=1)) for space in (SESSION, CHECKPOINT))


@contextmanager
def isolated_environment() -> Iterator[None]:
    """Remove Outlast's settings, under any name and from any file, within the block.

    Child processes inherit this. They import modules only from the program's own folder.
    """
    before = dict(os.environ)
    for name in before:
        if name.upper().startswith("OUTLAST_") or name in (GRACE, *STORES):
            del os.environ[name]
    os.environ.update(OUTLAST_ENV_FILE="", OUTLAST_SECRETS_DIR="", PYTHONSAFEPATH="1")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
