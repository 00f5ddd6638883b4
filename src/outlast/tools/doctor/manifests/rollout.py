"""Check how a roll-out of a manifest replaces workers, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from outlast.settings import Settings
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, counted, ok, warning
from outlast.tools.doctor.manifests.settings import GRACE_NAMES, for_each_worker, store_of
from outlast.tools.doctor.manifests.workload import Workload

ROLLOUT_SECONDS = 3_600.0
START_SECONDS = 30.0
"""Rough time until a new pod is ready."""


def rollout(facts: Facts) -> Iterator[Finding]:
    budget = facts.rollout_budget or ROLLOUT_SECONDS
    return for_each_worker(*GRACE_NAMES)(partial(_rollout, budget=budget))(facts)


def _rollout(worker: Workload, settings: Settings, budget: float) -> Iterator[Finding]:
    if worker.kind not in ("Deployment", "StatefulSet"):
        return
    replicas = worker.replicas or 1
    surge = unavailable = 0
    # The pods of a StatefulSet are replaced one by one, each in the place of the old one.
    if worker.kind == "Deployment":
        surge = math.ceil(_share(worker.surge, replicas))
        unavailable = math.floor(_share(worker.unavailable, replicas))
    # A file has one owner: the old pod must be gone before the new one starts.
    has_file = (store_of(worker) or "").startswith(("sqlite:", "file:"))
    if (worker.recreate or unavailable > surge) and not has_file:
        how = (
            "Recreate"
            if worker.recreate
            else f"maxUnavailable {worker.unavailable} above maxSurge {worker.surge}"
        )
        yield warning(
            f"a roll-out removes more workers than it adds ({how}): "
            "their runs wait for free slots.",
            "Set maxSurge: 1 and maxUnavailable: 0.",
        )
    together = replicas if worker.recreate else max(1, surge + unavailable)
    drain = (worker.pre_stop or 0.0) + settings.grace
    seconds = math.ceil(replicas / together) * (drain + START_SECONDS)
    takes = (
        f"{counted(replicas, 'pod')}, {together} at a time, each up to {drain:g} s of drain: a "
        f"roll-out takes up to {seconds / 60:.0f} minutes"
    )
    deadline = worker.progress_deadline
    if seconds > budget:
        less = "Raise maxSurge" if worker.kind == "Deployment" else "Use fewer pods"
        yield warning(f"{takes}, more than {budget / 60:.0f}.", f"{less}, or lower OUTLAST_GRACE.")
    elif deadline is not None and deadline < START_SECONDS + drain:
        yield warning(
            f"progressDeadlineSeconds={deadline:g} is shorter than the drain of one pod: "
            "Kubernetes reports the roll-out as failed.",
            "Raise it.",
        )
    else:
        yield ok(f"{takes}.")


def _share(text: str, replicas: int) -> float:
    """Return a number of pods, or a percentage of the replicas."""
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdigit()):
        return 0
    return int(number) if number == text else replicas * int(number) / 100
