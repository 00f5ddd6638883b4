"""Check how a roll-out of a manifest replaces workers, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from outlast.settings import Settings
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, counted, ok, warning
from outlast.tools.doctor.manifest_settings import (
    GRACE_NAMES,
    for_each_worker,
    settings_of,
    store_of,
)
from outlast.tools.doctor.workload import Workload

ROLLOUT_SECONDS = 3_600.0
START_SECONDS = 30.0
"""Rough time until a new pod is ready."""


def rollout(facts: Facts) -> Iterator[Finding]:
    budget = facts.rollout_budget or ROLLOUT_SECONDS
    yield from for_each_worker(lambda worker: _rollout(worker, budget))(facts)


def _rollout(worker: Workload, budget: float) -> Iterator[Finding]:
    chosen = settings_of(worker, *GRACE_NAMES)
    if worker.kind not in ("Deployment", "StatefulSet") or chosen is None:
        return
    replicas = worker.replicas or 1
    surge = unavailable = 0
    # The pods of a StatefulSet are replaced one by one, each in the place of the old one.
    if worker.kind == "Deployment":
        surge = _share(worker.surge, replicas, up=True)
        unavailable = _share(worker.unavailable, replicas, up=False)
    # A file has one owner: the old pod must be gone before the new one starts.
    has_file = (store_of(worker) or "").startswith(("sqlite:", "file:"))
    if (worker.recreate or unavailable > surge) and not has_file:
        how = "Recreate"
        if not worker.recreate:
            how = f"maxUnavailable {worker.unavailable} above maxSurge {worker.surge}"
        yield warning(
            f"a roll-out removes more workers than it adds ({how}): their runs wait for free "
            "slots.",
            "Set maxSurge: 1 and maxUnavailable: 0.",
        )
    yield _duration(worker, chosen, replicas, max(1, surge + unavailable), budget)


def _duration(
    worker: Workload, chosen: Settings, replicas: int, together: int, budget: float
) -> Finding:
    if worker.recreate:
        together = replicas
    drain = (worker.pre_stop or 0.0) + chosen.grace
    seconds = math.ceil(replicas / together) * (drain + START_SECONDS)
    takes = (
        f"{counted(replicas, 'pod')}, {together} at a time, each up to {drain:g} s of drain: a "
        f"roll-out takes up to {seconds / 60:.0f} minutes"
    )
    if seconds > budget:
        is_ordered = worker.kind == "StatefulSet"
        return warning(
            f"{takes}, more than {budget / 60:.0f}.",
            f"{'Use fewer pods' if is_ordered else 'Raise maxSurge'}, or lower OUTLAST_GRACE.",
        )
    deadline = worker.progress_deadline
    if deadline is not None and deadline < START_SECONDS + drain:
        return warning(
            f"progressDeadlineSeconds={deadline:g} is shorter than the drain of one pod: "
            "Kubernetes reports the roll-out as failed.",
            "Raise it.",
        )
    return ok(f"{takes}.")


def _share(text: str | None, replicas: int, *, up: bool) -> int:
    """Return a number, or a percentage of the replicas, rounded as Kubernetes does."""
    number = (text or "").removesuffix("%")
    if text is None or not (number.isascii() and number.isdigit()):
        return 0
    if not text.endswith("%"):
        return int(number)
    part = replicas * int(number) / 100
    return math.ceil(part) if up else math.floor(part)
