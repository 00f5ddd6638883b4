"""Every check there is, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outlast.doctor import fleet, grace, manifested, place, processes, servers
from outlast.doctor.facts import Facts
from outlast.doctor.finding import Finding, note

Check = Callable[[Facts], Iterable[Finding]]

HERE: dict[str, Check] = {
    "grace": grace.grace,
    "steps": grace.steps,
    "lease": grace.lease,
    "signals": processes.signals,
    "filesystem": place.filesystem,
    "redis": servers.redis,
    "postgres": servers.postgres,
    "http": place.http,
    "store": fleet.store,
    "runs": fleet.runs,
    "workers": fleet.workers,
    "drains": fleet.drains,
}
"""Of this machine and its store."""

IN_MANIFESTS: dict[str, Check] = {
    "settings": manifested.settings,
    "grace": manifested.grace,
    "lease": manifested.lease,
    "signals": manifested.signals,
    "rollout": manifested.rollout,
    "filesystem": manifested.filesystem,
    "redis": manifested.redis,
    "http": manifested.http,
    "probes": manifested.probes,
    "job": manifested.job,
}
"""Of files, wherever they are."""


def examine(facts: Facts, checks: dict[str, Check]) -> list[Finding]:
    """All of them: one that fails is told, and the others are made."""
    found: list[Finding] = []
    for name, check in checks.items():
        try:
            found += check(facts)
        except Exception as failure:  # whatever it is, it must not hide what the other checks find
            found.append(note(name, f"this check could not be made: {type(failure).__name__}: {failure}", "Tell the makers of Outlast."))  # fmt: skip
    return found
