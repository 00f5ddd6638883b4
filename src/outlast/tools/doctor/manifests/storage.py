"""Check where manifests keep the store: on a volume that stays, or on a durable Redis."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePosixPath

from outlast.settings import Settings
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, error, note, ok, warning
from outlast.tools.doctor.manifests.settings import for_each_worker, store_of
from outlast.tools.doctor.manifests.workload import Workload

_LOST = "it is lost with the pod, and every run in it."
_MOUNT = "Mount a volume that stays (a claim) at its folder."
_UNSUITABLE = {
    None: (f"in the container: {_LOST}", _MOUNT),
    "tmpfs": (f"in memory: {_LOST}", _MOUNT),
    "emptyDir": (f"on an emptyDir volume: {_LOST}", _MOUNT),
    "ephemeral": (f"on an ephemeral volume: {_LOST}", _MOUNT),
    "readonly": ("on a volume that cannot be written.", "Mount a writable one."),
    "nfs": (
        "on a network file system (NFS or similar), whose locks and syncs are not reliable enough.",
        "Use a disk, or Postgres.",
    ),
}
"""What is wrong with a kind of mount, and what to do about it. None is no mount."""


@for_each_worker()
def filesystem(worker: Workload, _settings: Settings) -> Iterator[Finding]:
    address = store_of(worker)
    if worker.kind in ("systemd", "Dockerfile") or address is None:
        return
    if not address:
        yield note(
            "no store is named here. Unless the program names one, it is sqlite:///outlast.db in "
            "the working folder, and lost with the container.",
            "Set OUTLAST_STORE.",
        )
    scheme, _, rest = address.partition(":")
    if scheme not in ("sqlite", "file"):
        return
    # SQLite can serve replicas that share a machine and its mounts.
    pinned = worker.pinned and worker.kind != "StatefulSet"
    shares = scheme == "sqlite" and (worker.kind == "compose" or pinned)
    if (worker.replicas or 1) > 1 and not shares:
        yield error(
            f"{worker.replicas} replicas, and a store that is a file: each would have its own.",
            "Use a StatefulSet with one replica, or a Postgres or Redis store.",
        )
    if not rest.startswith("////" if scheme == "sqlite" else "///"):
        yield warning(
            f"the store {address} is in the working folder of the container, and lost with it.",
            "Give it an absolute path on a volume: sqlite:////data/outlast.db.",
        )
        return
    path = PurePosixPath("/" + rest.lstrip("/").partition("?")[0])
    over = [mount for mount in worker.mounts if path.is_relative_to(mount)]
    kind = worker.mounts[max(over, key=len)] if over else None
    if kind in _UNSUITABLE:
        what, fix = _UNSUITABLE[kind]
        yield error(f"the store {path} is {what}", fix)
    else:
        yield ok(f"the store {path} is on a volume.")


def redis(facts: Facts) -> Iterator[Finding]:
    """Check each Redis server, unless every worker is known to use another store.

    A Redis that is only a cache may lose its data.
    """
    stores = [store_of(one) for one in facts.workloads if one.is_worker]
    if stores and not any(one is None or one.startswith(("redis", "unix:")) for one in stores):
        return
    for one in facts.workloads:
        repository = one.image.partition("@")[0]
        if repository.rpartition("/")[2].partition(":")[0] in ("redis", "valkey"):
            found = _server(one, configured_by_env="bitnami" in repository)
            yield found._replace(where=one.where)


def _server(one: Workload, *, configured_by_env: bool) -> Finding:
    exec_form, shell, _ = one.command
    line = " ".join(exec_form) if shell is None or shell.line is None else shell.line
    words = [word.strip("'\"") for word in line.lower().split()]
    options = dict(pairwise(words))
    policy = options.get("--maxmemory-policy", "noeviction")
    has_script = shell is not None and shell.script is not None
    has_file = has_script or any(word.endswith(".conf") for word in words)
    if "--appendonly" not in options and (configured_by_env or has_file):
        return note(
            "whether appendonly is on depends on its configuration, which is not in this file.",
            "Look there, or ask the server itself: outlast doctor --store redis://….",
        )
    if options.get("--appendonly") != "yes":
        return error(
            "appendonly is not on: when this server ends, everything since its last snapshot is "
            "lost.",
            "Start it with --appendonly yes.",
        )
    if policy != "noeviction" and not policy.startswith("volatile-"):
        what = f"maxmemory-policy is {policy}: a full server drops runs and journals."
        return error(what, "Use noeviction.")
    if "volume" not in one.mounts.values():
        what = "its data is on no volume, and lost with the container."
        return error(what, "Mount a volume at /data.")
    return ok("appendonly is on, on a volume, and nothing is evicted.")
