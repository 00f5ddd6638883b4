"""Copy stores in memory, so that they outlive their objects and open quickly.

Creating the schema takes several times as long as a short test, so each process creates it once and
copies it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path

from outlast.store.sqlite.store import SQLiteStore


class ImageStore(SQLiteStore):
    """Open a store in memory with the content of another one."""

    def __init__(self, image: bytes, *, clock: Callable[[], float] | None = None) -> None:
        super().__init__(None, clock=clock)
        self._image = image

    def _connect_memory(self) -> sqlite3.Connection:
        db = super()._connect_memory()
        db.deserialize(self._image)
        return db


class EmptyStore(ImageStore):
    """Open a store in memory with its schema already in it."""

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        super().__init__(_empty_image(), clock=clock)


def image_of(store: SQLiteStore) -> bytes:
    """Return the content of a store in memory."""
    with store._writing:
        return store._db.serialize()


def open_image(image: bytes, *, clock: Callable[[], float] | None = None) -> ImageStore:
    """Return an open store with this content."""
    store = ImageStore(image, clock=clock)
    store.open()
    return store


def empty_file(path: Path) -> Path:
    """Create a store file as its first process would leave it, readable only by its owner."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(_empty_image())
    return path


@cache
def _empty_image() -> bytes:
    store = SQLiteStore(None)
    store.open()
    try:
        return image_of(store)
    finally:
        store.close()
