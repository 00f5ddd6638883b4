"""Create empty stores quickly.

Creating the schema takes several times as long as a short test, so each process creates it once and
copies it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from outlast.store.sqlite.store import SQLiteStore


@cache
def _image() -> bytes:
    store = SQLiteStore(None)
    store.open()
    try:
        return store.image()
    finally:
        store.close()


class EmptyStore(SQLiteStore):
    """Open a store in memory with its schema already in it."""

    def _open_memory(self, image: bytes | None) -> None:
        super()._open_memory(_image() if image is None else image)


def empty_file(path: Path) -> Path:
    """Create a store file as its first process would leave it, readable only by its owner."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(_image())
    return path
