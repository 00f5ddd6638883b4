"""Open a database as a worker does, among files of another user."""

from __future__ import annotations

from pathlib import Path

from outlast.store.commands import RegisterWorker, Submit
from outlast.store.sqlite.store import SQLiteStore

STRANGER = 54_321


def opened(path: Path) -> None:
    store = SQLiteStore(path)
    store.open()
    try:
        store.acquire_liveness("w")
        store.commit(
            [RegisterWorker("w", "host", 1, 60.0), Submit("r", "flow", "{}", "t", "00" * 16)]
        )
    finally:
        store.close()
