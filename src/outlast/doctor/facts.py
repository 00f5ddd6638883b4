"""What the checks go by, gathered once. Each part may be missing: then the reason is there instead."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlast.doctor.machine import Mount, Process, ancestry, folder_of, mount_of
from outlast.doctor.workload import Workload
from outlast.drain.report import DrainReport
from outlast.errors import OutlastError, StoreError
from outlast.settings.load import Loaded
from outlast.store.address import store_at
from outlast.store.protocol import Store
from outlast.store.rows import QueueRow, WorkerRow

if TYPE_CHECKING:
    from outlast.cli.takers import Fleet

DRAINS = 50
"""How many of the last drains are looked at."""
STEPS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a store that is a file lies."""

    path: Path
    exists: bool
    writable: bool
    free: int
    size: int
    mount: Mount | None
    """None where the system does not tell."""


@dataclass(frozen=True, slots=True)
class InStore:
    """What the store says of the fleet."""

    now: float
    queues: tuple[QueueRow, ...] = ()
    unknown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By queue: workflows with ready runs that no living worker knows."""
    workers: tuple[WorkerRow, ...] = ()
    dead: frozenset[str] = frozenset()
    drains: tuple[DrainReport, ...] = ()
    durations: Mapping[tuple[str, str], list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    loaded: Loaded
    scheme: str
    """Of the store's address: sqlite, file, postgresql, redis, memory."""
    folder: Folder | None = None
    store: InStore | None = None
    store_error: str = ""
    """Why nothing is known of the store."""
    server: Mapping[str, Any] = field(default_factory=dict)
    """What a Postgres or Redis says of itself."""
    processes: Mapping[str, tuple[Process, ...]] = field(default_factory=dict)
    """Of this host's workers, by id: the process, then its parents up to PID 1."""
    has_proc: bool = True
    workloads: tuple[Workload, ...] = ()
    rollout_budget: float | None = None


def gather(loaded: Loaded, *, proc: Path = Path("/proc")) -> Facts:
    """Of this machine and of the store in force. Nothing is made, and nothing in it is changed."""
    address = loaded.address()
    scheme = {"postgres": "postgresql", "rediss": "redis", "unix": "redis"}.get(
        (found := address.partition(":")[0].lower()), found
    )
    store = store_at(address, heartbeat=loaded.settings.heartbeat)
    folder = _folder(store) if scheme in ("sqlite", "file") else None
    facts: dict[str, Any] = {
        "loaded": loaded,
        "scheme": scheme,
        "folder": folder,
        "has_proc": (proc / "self").exists(),
    }
    try:
        there, _ = store.versions()
        if scheme == "memory" or there == 0:
            what = (
                "it lives and ends with its process"
                if scheme == "memory"
                else "there is none at this address yet"
            )
            return Facts(**facts, store_error=what, server=_server(scheme, address))
        facts["server"] = _server(scheme, address)
        store.open()
        with closing(store):
            facts["store"] = in_store(store)
    except (OutlastError, StoreError) as error:
        return Facts(**facts, store_error=str(error))
    host = socket.gethostname()
    mine = [worker for worker in facts["store"].workers if worker.host == host]
    facts["processes"] = {worker.id: chain for worker in mine if (chain := ancestry(worker.pid, proc))}
    return Facts(**facts)


def in_store(store: Store) -> InStore:
    from outlast.cli.takers import Fleet

    fleet: Fleet = Fleet.of(store)
    queues = tuple(store.queues())
    unknown = {row.name: store.look((row.name,), fleet.known(row.name)).unknown for row in queues}
    pairs = store.measured()[:STEPS_MAX]
    return InStore(
        now=fleet.now, queues=queues, unknown={name: found for name, found in unknown.items() if found},
        workers=tuple(fleet.workers), dead=fleet.dead, drains=tuple(map(DrainReport.of, store.drains(DRAINS))),
        durations=store.durations(pairs) if pairs else {},
    )  # fmt: skip


def _folder(store: Any) -> Folder:
    path = Path(getattr(store, "path", None) or store.folder).absolute()
    exists = path.exists()
    there = folder_of(path)
    room = os.statvfs(there) if hasattr(os, "statvfs") else None
    target = path if exists else there
    return Folder(
        path, exists, os.access(target, os.W_OK) and os.access(there, os.W_OK | os.X_OK),
        room.f_bavail * room.f_frsize if room else -1, room.f_blocks * room.f_frsize if room else -1, mount_of(there),
    )  # fmt: skip


def _server(scheme: str, address: str) -> Mapping[str, Any]:
    """Of the server itself; empty for what is none. Its clock is compared with ours, the way there and back taken off."""
    if scheme == "postgresql":
        return _postgres(address)
    return _redis(address) if scheme == "redis" else {}


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
        ((used,),) = db.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
        ((replica,),) = db.execute("SELECT pg_is_in_recovery()")
    except (psycopg.Error, OSError) as error:
        raise translate(error, parsed, sent=False, usable=False) from error
    finally:
        db.drop()
    return {
        **values,
        "used": used,
        "replica": replica,
        "pooler": db.pooler,
        "skew": now - (asked + answered) / 2,
        "trip": answered - asked,
    }


def _redis(address: str) -> Mapping[str, Any]:
    from outlast.store.redis.connection import Line, parse
    from outlast.store.redis.warnings import dangers, info, setting

    line = Line(parse(address))
    line.connect()
    try:
        asked = time.time()
        seconds, micros = line.call("TIME")
        answered = time.time()
        return {
            "dangers": dangers(line), "version": info(line, "server").get("redis_version", ""), "appendfsync": setting(line, "appendfsync"),
            "skew": int(seconds) + int(micros) / 1e6 - (asked + answered) / 2, "trip": answered - asked,
        }  # fmt: skip
    finally:
        line.drop()
