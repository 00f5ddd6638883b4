"""Gather the facts for the checks, once.

Each part may be missing. The reason is recorded instead.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlast.errors import OutlastError
from outlast.settings.load import Loaded
from outlast.shutdown.report import DrainReport
from outlast.store.address import store_at
from outlast.store.fleet import Fleet, Stall, stalls_of
from outlast.store.private_files import lock
from outlast.store.protocol import Store
from outlast.store.rows import QueueRow, WorkerRow
from outlast.store.tolerant_rows import legible
from outlast.tools.doctor.host import Mount, Process, ancestry, folder_of, mount_of
from outlast.tools.doctor.workload import Workload

DRAINS = 50
"""How many of the last drains to read."""
STEPS_MAX = 2_000
COPY_BYTES_MAX = 200_000_000
"""Largest file store that the doctor copies."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The location of a store that is a file."""

    path: Path
    exists: bool
    writable: bool
    """Whether this user may write the store, its folder and the files beside it."""
    free: int
    size: int
    mount: Mount | None
    """None where the system does not report it."""
    open_to_others: tuple[str, ...] = ()
    """Paths that every user of this machine may read or write.

    These are the database, the files and folders beside it, or the folder of a file store.
    """
    read_only: bool = False
    """Whether this user may read but not write the store itself.

    It belongs to another user, or the mount is read-only.
    """


@dataclass(frozen=True, slots=True)
class InStore:
    """What the store knows about the fleet."""

    now: float
    queues: tuple[QueueRow, ...] = ()
    unknown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By queue: workflows with ready runs that no live worker knows."""
    workers: tuple[WorkerRow, ...] = ()
    dead: frozenset[str] = frozenset()
    drains: tuple[DrainReport, ...] = ()
    stalls: tuple[Stall, ...] = ()
    """What blocked the event loops of workers in the last day."""
    durations: Mapping[tuple[str, str], list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    loaded: Loaded
    scheme: str
    """Scheme of the store's address: sqlite, file, postgresql, redis, memory."""
    folder: Folder | None = None
    store: InStore | None = None
    store_error: str = ""
    """Why nothing is known about the store."""
    store_fails: bool = False
    """Whether the store exists, or should, and cannot be used."""
    server: Mapping[str, Any] = field(default_factory=dict)
    """What a Postgres or Redis server reports about itself."""
    server_error: str = ""
    """Why the server reports nothing."""
    read_only: bool = False
    """Whether this user may read but not write the store, which is not a fault of the store."""
    processes: Mapping[str, tuple[Process, ...]] = field(default_factory=dict)
    """For workers on this host, by id: the process, then its parents up to PID 1."""
    has_proc: bool = True
    workloads: tuple[Workload, ...] = ()
    rollout_budget: float | None = None


def gather(loaded: Loaded, *, proc: Path = Path("/proc")) -> Facts:
    """Gather the facts of this machine and of the configured store. Create and change nothing."""
    address = loaded.address()
    scheme = {"postgres": "postgresql", "rediss": "redis", "unix": "redis"}.get(
        (found := address.partition(":")[0].lower()), found
    )
    store = store_at(address, heartbeat=loaded.settings.heartbeat)
    facts: dict[str, Any] = {
        "loaded": loaded,
        "scheme": scheme,
        "folder": _folder(store) if scheme in ("sqlite", "file") else None,
        "has_proc": (proc / "self").exists(),
    }
    try:
        there, known = store.versions()
        facts |= _server(scheme, address)
        facts["read_only"] = _is_read_only(facts)
        if (why := _unopened(scheme, there, known)) is not None:
            return Facts(**facts, store_error=why)
        seen = _looked_at(store)
    except Unseen as error:
        return Facts(**facts, store_error=str(error))
    except OutlastError as error:
        return Facts(**facts, store_error=str(error), store_fails=True)
    facts["store"] = seen
    host = socket.gethostname()
    mine = [worker for worker in seen.workers if worker.host == host and worker.id not in seen.dead]
    facts["processes"] = {
        worker.id: chain for worker in mine if (chain := ancestry(worker.pid, proc))
    }
    return Facts(**facts)


def _is_read_only(facts: Mapping[str, Any]) -> bool:
    """Return whether file modes, or the rights of a Postgres role, let this user only read."""
    folder: Folder | None = facts["folder"]
    return (
        folder.read_only
        if folder is not None
        else facts.get("server", {}).get("may_write") is False
    )


def _unopened(scheme: str, there: int, known: int) -> str | None:
    """Return why the store must not be opened: that would create or migrate it.

    Return None if it may be opened.
    """
    if scheme == "memory":
        return "it lives and ends with its process."
    if there == 0:
        return "there is none at this address yet."
    if there < known:
        return (
            f"its schema is version {there}, of an older Outlast, and opening it would bring it "
            f"to {known}: `outlast migrate` does that."
        )
    return None


class Unseen(OutlastError):
    """The store may be fine, but cannot be inspected now."""


def _looked_at(store: Store) -> InStore:
    """Read the store.

    Opening a file store repairs it and locks out every other process, so the doctor reads a copy.
    """
    folder = getattr(store, "folder", None)
    if folder is None:
        # Commands that only read never migrate, so a user without write access can open the store.
        store.migrates = False
        store.open()
        with closing(store):
            return in_store(store)
    with tempfile.TemporaryDirectory(prefix="outlast-doctor-") as place:
        try:
            path = _copied(Path(folder), Path(place) / "copy")
        except OSError as error:
            raise Unseen(f"no copy of it can be made: {error.strerror or error}.") from None
        copy = store_at(f"file://{path}")
        copy.open()
        with closing(copy):
            return in_store(copy)


def _copied(folder: Path, copy: Path) -> Path:
    if (
        size := sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
    ) > COPY_BYTES_MAX:
        raise Unseen(f"it has {size / 1e6:.0f} MB: too much to look into it without opening it.")
    with (folder / "lock").open("rb") as file:
        if not lock(file.fileno(), shared=True):
            raise Unseen("a file store is for one process at a time, and one has it open.")
    shutil.copytree(folder, copy)
    for one in [copy, *copy.rglob("*")]:
        # The store's own modes may forbid writing.
        one.chmod(0o700 if one.is_dir() else 0o600)
    return copy


def in_store(store: Store) -> InStore:
    with legible("the store"):
        return _in_store(store)


def _in_store(store: Store) -> InStore:
    fleet = Fleet.of(store)
    queues = tuple(store.queues())
    unknown = {row.name: store.peek((row.name,), fleet.known(row.name)).unknown for row in queues}
    pairs = store.measured()[:STEPS_MAX]
    return InStore(
        now=fleet.now,
        queues=queues,
        unknown={name: found for name, found in unknown.items() if found},
        workers=tuple(fleet.workers),
        dead=fleet.dead,
        stalls=stalls_of(store),
        drains=tuple(map(DrainReport.of, store.drains(DRAINS))),
        durations=store.durations(pairs) if pairs else {},
    )


def _folder(store: Any) -> Folder:
    path = Path(getattr(store, "path", None) or store.folder).absolute()
    # A link may lead to another file system.
    real = Path(os.path.realpath(path))
    try:
        there = folder_of(real)
        room = os.statvfs(there) if hasattr(os, "statvfs") else None
        exists = path.exists()
    # A parent folder is closed to this user.
    except OSError:
        return Folder(path, exists=False, writable=False, free=-1, size=-1, mount=mount_of(real))
    read_only = exists and os.access(real, os.R_OK) and not os.access(real, os.W_OK)
    return Folder(
        path,
        exists,
        _is_writable(real, there),
        room.f_bavail * room.f_frsize if room else -1,
        room.f_blocks * room.f_frsize if room else -1,
        mount_of(there),
        _open_to_others(real),
        read_only,
    )


def _open_to_others(path: Path) -> tuple[str, ...]:
    """Return the store's paths whose modes let other users in. Missing files will be private."""
    if not hasattr(os, "geteuid"):
        return ()
    rights = {one: one.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH) for one in _files_of(path)}
    return tuple(str(one) for one, others in rights.items() if others)


def _is_writable(path: Path, there: Path) -> bool:
    """Return whether this user may write the store, its folder and what lies beside a database.

    The first user of the database created -wal, -shm and the lock folder. That may be another user.
    """
    return os.access(there, os.W_OK | os.X_OK) and all(
        os.access(one, os.W_OK) for one in _files_of(path)
    )


def _files_of(path: Path) -> list[Path]:
    """Return the existing paths of a store.

    These are the file or folder itself, and what lies beside a database.
    """
    named = (path.with_name(f"{path.name}{end}") for end in ("", "-wal", "-shm", ".d"))
    return [one for one in named if one.exists()]


def _server(scheme: str, address: str) -> dict[str, Any]:
    """Return the server's report on itself, or the error.

    Return nothing for stores without a server.

    A failure here must not hide what the store reports.
    """
    asks = {"postgresql": _postgres, "redis": _redis}.get(scheme)
    if asks is None:
        return {}
    from outlast.store.redis.connection import Lost

    try:
        return {"server": asks(address)}
    except (OutlastError, Lost) as error:
        return {"server_error": str(error)}


def _postgres(address: str) -> Mapping[str, Any]:
    import psycopg

    from outlast.store.postgres.address import parse
    from outlast.store.postgres.connection import Connection
    from outlast.store.postgres.failures import translate

    parsed = parse(address)
    db = Connection(parsed)
    try:
        asked = time.time()
        ((now,),) = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        answered = time.time()
        names = (
            "server_version",
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "max_connections",
            "transaction_read_only",
        )
        values = {name: db.execute("SELECT current_setting(%s)", (name,))[0][0] for name in names}
        ((used,),) = db.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        )
        ((replica,),) = db.execute("SELECT pg_is_in_recovery()")
        rights = db.execute(
            "SELECT has_table_privilege(c.oid, 'INSERT, UPDATE') FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = "
            "'runs'",
            (parsed.schema,),
        )
    except (psycopg.Error, OSError) as error:
        raise translate(error, parsed, sent=False, usable=False) from error
    finally:
        db.drop()
    return {
        **values,
        "used": used,
        "replica": replica,
        "pooler": db.pooler,
        "may_write": rights[0][0] if rights else None,
        "skew": now - (asked + answered) / 2,
        "trip": answered - asked,
    }


def _redis(address: str) -> Mapping[str, Any]:
    from outlast.store.redis.connection import RedisConnection, parse
    from outlast.store.redis.server_warnings import dangers, info, setting

    line = RedisConnection(parse(address))
    line.connect()
    try:
        asked = time.time()
        seconds, micros = line.call("TIME")
        answered = time.time()
        return {
            "dangers": dangers(line),
            "version": info(line, "server").get("redis_version", ""),
            "appendfsync": setting(line, "appendfsync"),
            "skew": int(seconds) + int(micros) / 1e6 - (asked + answered) / 2,
            "trip": answered - asked,
        }
    finally:
        line.drop()
