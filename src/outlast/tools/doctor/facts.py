"""Gather the facts for the checks, once.

Each part may be missing. The reason is recorded instead.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlast.errors import OutlastError, StoreBroken
from outlast.settings.load import Loaded
from outlast.shutdown.report import DrainReport
from outlast.store.address import store_at
from outlast.store.fleet import Fleet, Stall, stalls_of
from outlast.store.pauses import read_pauses
from outlast.store.private_files import lock
from outlast.store.protocol import Store
from outlast.store.rows import SUSPECT_DEATHS, QueueRow, RunQuery, RunRow, WorkerRow
from outlast.store.tolerant_rows import DAMAGE, legible
from outlast.tools.doctor.host import Process, ancestry
from outlast.tools.doctor.manifests.workload import Workload
from outlast.tools.doctor.server_facts import server_facts
from outlast.tools.doctor.store_folder import Folder, store_folder

DRAINS = 50
"""How many of the last drains to read."""
STEPS_MAX = 2_000
ACTIVE_RUNS = 1_000
"""Among how many of the newest active runs the doctor looks for those that lose their workers."""
COPY_BYTES_MAX = 200_000_000
"""Largest file store that the doctor copies."""


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
    paused: tuple[str, ...] = ()
    """The paused workflows."""
    unclaimed: frozenset[str] = frozenset()
    """The queues from which no live worker claims."""
    crashing: tuple[RunRow, ...] | None = ()
    """Runs that wait or execute again after several deaths in a row with nothing recorded.

    None if the active runs cannot be read, because one of them is damaged.
    """


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
        "folder": store_folder(store) if scheme in ("sqlite", "file") else None,
        "has_proc": (proc / "self").exists(),
    }
    try:
        there, known = store.versions()
        facts |= server_facts(scheme, address)
        facts["read_only"] = _is_read_only(facts)
        if (why := _unopened(scheme, there, known)) is not None:
            return Facts(**facts, store_error=why)
        seen = _read_store(store)
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
        return "a memory: store exists only in its process."
    if there == 0:
        return "there is none at this address yet."
    if there < known:
        return (
            f"its schema is version {there}, of an older Outlast, and opening it would migrate "
            f"it to {known}: run `outlast migrate`."
        )
    return None


class Unseen(OutlastError):
    """The store may be fine, but cannot be inspected now."""


def _read_store(store: Store) -> InStore:
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
            raise Unseen(f"it cannot be copied: {error.strerror or error}.") from None
        copy = store_at(f"file://{path}")
        copy.open()
        with closing(copy):
            return in_store(copy)


def _copied(folder: Path, copy: Path) -> Path:
    if (
        size := sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
    ) > COPY_BYTES_MAX:
        raise Unseen(
            f"it has {size / 1000000.0:.0f} MB, too much to copy, and opening it would lock out "
            "its worker."
        )
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
        unclaimed=frozenset(row.name for row in queues if not fleet.claims_from(row.name)),
        crashing=_crashing(store),
        workers=tuple(fleet.workers),
        dead=fleet.dead,
        stalls=stalls_of(store),
        paused=tuple(one.name for one in read_pauses(store)),
        drains=tuple(map(DrainReport.of, store.drains(DRAINS))),
        durations=store.durations(pairs) if pairs else {},
    )


def _crashing(store: Store) -> tuple[RunRow, ...] | None:
    """Return the active runs that lost several workers in a row with nothing recorded.

    Damage to a run must not stop the other checks: return None then.
    """
    try:
        rows = store.runs(RunQuery(statuses=("queued", "running"), limit=ACTIVE_RUNS))
        return tuple(row for row in rows if row.deaths_in_a_row >= SUSPECT_DEATHS)
    except (StoreBroken, *DAMAGE):
        return None
