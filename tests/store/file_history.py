"""What the tests of the file store share: a history that makes it do everything, and a disk on which anything can happen."""

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

from outlast.store.commands import (
    Ack,
    Append,
    Claim,
    DeleteSession,
    Prune,
    Record,
    RegisterWorker,
    Release,
    Renew,
    SaveProgress,
    Send,
    Settle,
    Submit,
    Sweep,
    UpdateSession,
)
from outlast.store.file import journal_files
from outlast.store.file import store as module
from outlast.store.file.store import FileStore
from outlast.testing.conformance import ManualClock
from support.quick_files import QuickFileStore


@contextmanager
def quick_folder():
    """Thousands of deaths: what is synced need not go to a disk for that."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


def submit(id: str, **fields) -> Submit:
    return Submit(
        **{"id": id, "workflow": "flow", "args": "[]", "token": id, "seed": "seed"} | fields
    )


def opened(folder, clock=None) -> FileStore:
    store = QuickFileStore(folder, clock=clock or ManualClock())
    store.open()
    return store


def dump(store) -> dict:
    """Every row that the store has in memory."""
    names = store._db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {
        name: sorted(store._db.execute(f"SELECT * FROM {name}"), key=repr) for (name,) in names
    } | {
        "sqlite_sequence": sorted(
            row for row in store._db.execute("SELECT name, seq FROM sqlite_sequence") if row[1]
        )
    }


def write_history(store, told=lambda: None) -> None:
    """Runs, items and sessions, from their beginning to their end; `told()` is called after each commit."""
    clock = store._clock

    def do(*commands):
        outcomes = store.commit(commands)
        clock.forward(1)
        told()
        return outcomes

    store.acquire_liveness("w")
    do(RegisterWorker("w", "host", 1, 1000.0))
    one = do(submit("one", worker="w"), submit("two"), submit("item", workflow="", queue="items"))[
        0
    ].row
    do(
        Record(one.pk, 1, one.fence, "step", "a", 1.0, value='{"text": "häh"}'),
        Send("two", "m", "1", '"hi"'),
    )
    do(UpdateSession("s", "k1", {"a": "1", "b": "2"}, appends={"turns": Append(('"x"', '"y"'))}))
    (two,) = do(Claim("w", "c1", queues=("default",)))[0]
    do(
        Record(one.pk, 2, one.fence, "step", "b", 2.0),
        SaveProgress(two.pk, two.fence, "k", 1, '"half"'),
    )
    do(Record(two.pk, 1, two.fence, "step", "a", 1.0), UpdateSession("s", "k2", {"a": None}))
    (item,) = do(Claim("w", "c2", queues=("items",)))[0]
    do(Ack(item.pk, item.fence, "items"), Settle(one.pk, one.fence, "done", value='"end"'))
    do(Release(two.pk, two.fence, "drain"), Renew("w", 1000.0))
    do(Prune(clock.now + 1), submit("three"))
    do(DeleteSession("s", "f1"), UpdateSession("s2", "k3", {"c": "3"}), Sweep())
    for number in range(3):
        do(Renew("w", 1000.0), UpdateSession("s2", f"n{number}", {"c": '"' + "x" * 300 + '"'}))


@contextmanager
def small_files():
    """The log turns over, and files are rewritten, after very little."""
    before = module.LOG_BYTES_MAX, journal_files.REWRITE_BYTES_MIN
    module.LOG_BYTES_MAX, journal_files.REWRITE_BYTES_MIN = 2500, 1200
    try:
        yield
    finally:
        module.LOG_BYTES_MAX, journal_files.REWRITE_BYTES_MIN = before


def states(folder) -> list[dict]:
    """What a store holds at the beginning of the history and after each of its commits."""
    store = opened(folder)
    found = [dump(store)]
    with small_files():
        write_history(store, lambda: found.append(dump(store)))
    store.close()
    return found


OPERATIONS = ("open", "write", "ftruncate", "fsync", "replace", "unlink", "mkdir")


class Disk:
    """Every operation on files below a folder goes through `meddle(name, path, act)`, which does `act()` or something else."""

    def __init__(self, folder: Path, meddle) -> None:
        self._folder, self._meddle = str(folder), meddle
        self._paths: dict[int, str] = {}

    @contextmanager
    def on(self):
        real = {name: getattr(os, name) for name in OPERATIONS} | {"close": os.close}
        for name in OPERATIONS:
            setattr(os, name, self._wrapped(name, real[name]))
        os.close = self._close(real["close"])
        for fd in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                self._paths[int(fd.name)] = str(fd.readlink())
        try:
            yield self
        finally:
            for name, function in real.items():
                setattr(os, name, function)

    def _wrapped(self, name, real):
        def operation(target, *args, **kwargs):
            path = self._paths.get(target) if isinstance(target, int) else str(target)
            if path is None or not path.startswith(self._folder):
                return real(target, *args, **kwargs)

            def act(*other):
                result = real(target, *(other or args), **kwargs)
                if name == "open":
                    self._paths[result] = path
                return result

            return self._meddle(name, path, act, *args)

        return operation

    def _close(self, real):
        def close(fd):
            self._paths.pop(fd, None)
            real(fd)

        return close
