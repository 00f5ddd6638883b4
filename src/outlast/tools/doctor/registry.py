"""List every check, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outlast.tools.doctor import fleet, grace, local_checks, processes, servers
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, named, note
from outlast.tools.doctor.manifests import checks, rollout, storage

Check = Callable[[Facts], Iterable[Finding]]

HERE: dict[str, Check] = {
    "grace": grace.grace,
    "steps": grace.steps,
    "lease": grace.lease,
    "signals": processes.signals,
    "filesystem": local_checks.filesystem,
    "redis": servers.redis,
    "postgres": servers.postgres,
    "http": local_checks.http,
    "store": fleet.store,
    "runs": fleet.runs,
    "workers": fleet.workers,
    "drains": fleet.drains,
}
"""Checks of this machine and its store."""

IN_MANIFESTS: dict[str, Check] = {
    "settings": checks.settings,
    "grace": checks.grace,
    "lease": checks.lease,
    "signals": checks.signals,
    "rollout": rollout.rollout,
    "filesystem": storage.filesystem,
    "redis": storage.redis,
    "http": checks.http,
    "probes": checks.probes,
    "job": checks.job,
}
"""Checks of manifest files, wherever they are."""


def examine(facts: Facts, checks: dict[str, Check]) -> list[Finding]:
    """Run all checks. A check that fails becomes a finding and does not stop the others."""
    found: list[Finding] = []
    for name, check in checks.items():
        try:
            found += named(name, check(facts))
        # No failure may hide what the other checks find.
        except Exception as failure:
            what = f"this check could not be made: {type(failure).__name__}: {failure}"
            found += named(name, [note(what, "Please report this as a bug in Outlast.")])
    return found
