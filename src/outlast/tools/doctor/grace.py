"""Check times: grace against the environment and the duration of steps, and leases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from statistics import median

from outlast.settings import Settings
from outlast.settings.checks import exit_seconds
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, counted, note, ok, warning

MARGIN_MIN = 2.0
"""Seconds that the environment must allow beyond everything the worker needs."""
SAMPLES_MIN = 5
"""Recorded durations a step needs before the check judges it."""
NAMED_MAX = 5


def grace(facts: Facts) -> Iterator[Finding]:
    """Report the grace. A process cannot ask its environment how long it has."""
    seconds = facts.loaded.settings.grace
    pod = "KUBERNETES_SERVICE_HOST" in os.environ
    where = (
        "this pod's terminationGracePeriodSeconds is" if pod else "what the environment allows is"
    )
    yield note(
        f"grace is {seconds:g} s; {where} not visible from here.",
        f"Allow at least {seconds + MARGIN_MIN:g} s, plus the duration of a preStop command: "
        "`outlast doctor --manifest FILE` compares them.",
    )


def step_seconds(settings: Settings) -> float:
    """Return the seconds a step has in a drain before it must stop."""
    return (
        settings.grace
        - settings.checkpoint_reserve
        - settings.exit_reserve
        - exit_seconds(settings.grace)
    )


def steps(facts: Facts) -> Iterator[Finding]:
    if facts.store is None:
        return
    has = step_seconds(facts.loaded.settings)
    never = []
    mostly = []
    measured = {
        pair: found for pair, found in facts.store.durations.items() if len(found) >= SAMPLES_MIN
    }
    for (workflow, step), found in sorted(measured.items()):
        if min(found) > has:
            never.append(f"{step} of {workflow} (at least {min(found):.0f} s)")
        elif median(found) > has:
            mostly.append(f"{step} of {workflow} (median {median(found):.0f} s)")
    fix = (
        "Raise grace, or let the step save progress, so that it continues from there and not "
        "from its beginning (`outlast explain steps`)."
    )
    if never:
        yield warning(
            f"steps that never finish within the {has:g} s that a drain allows: {_some(never)}.",
            fix,
        )
    if mostly:
        yield note(
            f"steps that usually do not finish within the {has:g} s that a drain allows: "
            f"{_some(mostly)}.",
            fix,
        )
    if not measured:
        yield note(
            f"no step has {SAMPLES_MIN} recorded durations yet, so it is unknown whether steps "
            f"finish within the {has:g} s that a drain allows."
        )
    elif not never and not mostly:
        finish = "finishes" if len(measured) == 1 else "finish"
        yield ok(
            f"{counted(len(measured), 'step')} with recorded durations {finish} within the "
            f"{has:g} s that a drain allows."
        )


def leases(settings: Settings) -> Iterator[Finding]:
    """Check the times after which workers count as dead, in any settings."""
    if settings.stall_max >= settings.lease:
        yield warning(
            f"stall_max={settings.stall_max:g} is not below lease={settings.lease:g}: a worker "
            "whose loop is blocked keeps its lease until it expires, and learns late that it lost "
            "its runs.",
            f"Set stall_max to {_two_thirds(settings.lease)} or less.",
        )
    if settings.lease < 5:
        yield warning(
            f"lease={settings.lease:g} s: on a busy node or with a slow store, live workers look "
            "dead, and their steps are redone.",
            "Use 15 to 60 s. A lock reveals most deaths sooner anyway.",
        )
    if settings.poll > settings.lease / 2:
        yield warning(
            f"poll={settings.poll:g} s is more than half of lease={settings.lease:g}: without "
            "notifications, the runs of dead workers are found late.",
            "Lower poll to about 2 s.",
        )


def _two_thirds(seconds: float) -> str:
    """Return two thirds, rounded as a person would write them."""
    found = seconds * 2 / 3
    return f"{found:.0f}" if found >= 10 else f"{found:.2g}"


def lease(facts: Facts) -> Iterator[Finding]:
    settings = facts.loaded.settings
    found = list(leases(settings))
    yield from found
    workers = facts.store.workers if facts.store else ()
    # Skip a damaged lease: another check reports it.
    others = {one.lease for one in workers if isinstance(one.lease, (int, float))}
    if len(others) > 1:
        yield warning(
            "workers of this store have different leases: "
            f"{', '.join(f'{one:g} s' for one in sorted(others))}.",
            "Give all of them the same OUTLAST_LEASE. The sweeper uses the lease of the dead "
            "worker, but alerts and people expect one number.",
        )
    elif not found:
        yield ok(
            f"lease {settings.lease:g} s, heartbeat {settings.heartbeat:g} s, poll "
            f"{settings.poll:g} s."
        )


def _some(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
