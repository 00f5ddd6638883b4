"""Empty stores at once. To make the schema takes several times as long as a short test on it: it is made once a process, and copied."""

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
    """A store in memory that is opened with its schema in it."""

    def _open_memory(self, image: bytes | None) -> None:
        super()._open_memory(_image() if image is None else image)


def empty_file(path: Path) -> Path:
    """A new file for a store, as the first process to open it would leave it; only its owner may read it."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(_image())
    return path
