"""Close a store's connections around a fork.

SQLite keeps one record of locks per file and process. A child inherits the record but not the
locks, so a new connection in the child would believe it holds what only the parent holds. When the
parent closes, it would remove the log under the child, and the child's later commits would be lost
(this was observed). So the child closes the inherited connections before it opens the file again.
That is safe only between transactions, so a fork waits until none is in progress.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

PATIENCE = 10.0
"""How many seconds a fork waits for a transaction. Only a thread that forks inside its own
transaction would wait forever.
"""


class Forkable(Protocol):
    def locks(self) -> list[threading.Lock]:
        """Return the locks that keep transactions from starting, in the order they are taken."""
        ...

    def after_fork(self, *, at_rest: bool) -> None:
        """Release in the child what the parent depends on.

        If the store is not `at_rest`, a transaction may be in progress.
        """


_opened: weakref.WeakSet[Forkable] = weakref.WeakSet()
_forking = threading.Lock()
_taken: list[threading.Lock] = []
_stores: list[tuple[Forkable, bool]] = []


def watch(store: Forkable) -> None:
    _opened.add(store)


def _before() -> None:
    _forking.acquire()
    for store in list(_opened):
        at_rest = True
        for lock in store.locks():
            if lock.acquire(timeout=PATIENCE):
                _taken.append(lock)
            else:
                at_rest = False
        _stores.append((store, at_rest))


def _let_go() -> None:
    for lock in reversed(_taken):
        lock.release()
    _taken.clear()
    _stores.clear()
    _forking.release()


def _in_child() -> None:
    stores = list(_stores)
    _let_go()
    for store, at_rest in stores:
        store.after_fork(at_rest=at_rest)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_let_go, after_in_child=_in_child)
