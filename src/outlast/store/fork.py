"""Fork. A connection that was opened before it must be closed in the child before the file is opened again there.

SQLite keeps one record of locks a file and process. A child inherits the record, not the locks: a new connection in the
child would believe that it holds what only the parent does, the parent's close would remove the log under it, and what
the child then commits would be lost (seen). So the child closes what it inherited, which is safe only between
transactions: a fork waits until none is under way.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

PATIENCE = 10.0
"""How long a fork waits for a transaction. It can be endless only if the forking thread itself is inside of one."""


class Forkable(Protocol):
    def locks(self) -> list[threading.Lock]:
        """What keeps a transaction from starting, in the order in which the store takes them."""
        ...

    def after_fork(self, *, at_rest: bool) -> None:
        """In the child: let go of what the parent's life depends on. Not at rest: a transaction may be under way."""


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
