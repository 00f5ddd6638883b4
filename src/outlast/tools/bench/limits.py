"""Determine what limits the store, and what helps."""

from __future__ import annotations

from outlast.tools.bench.figures import Limit, Spread, Steps

MOSTLY = 0.5
"""From this share of a lone step on, the commit is the limit."""
BUSY = 0.8
"""From this share of a core on, used or waited for, CPU is the limit."""

_KINDS = {"postgres": "postgresql", "rediss": "redis", "unix": "redis"}
_WAITS_FOR = {"sqlite": "the disk", "file": "the disk"}
_QUICKER = {
    "sqlite": "a faster local disk",
    "file": "a faster local disk",
    "postgresql": "a server that is closer, or that has a faster disk for its log",
    "redis": "a server that is closer; with appendfsync always, one that has a faster disk",
}
_ALONE = ("file", "memory")
"""Stores that allow one process at a time."""


def limits(address: str, commit: Spread, lone: Steps, hundred: Steps) -> tuple[Limit, Limit]:
    kind = address.partition(":")[0].lower()
    kind = _KINDS.get(kind, kind)
    return _of_lone(kind, address, commit, lone), _of_hundred(kind, hundred)


def _of_lone(kind: str, address: str, commit: Spread, lone: Steps) -> Limit:
    step = ms(lone.latency.p50)
    share = "more runs at once, which share commits"
    if commit.p50 >= MOSTLY * lone.latency.p50 and kind != "memory":
        # Commits and steps are measured one after another, so the store may have sped up between
        # them.
        alone = (
            f"the smallest commit alone {ms(commit.p50)}"
            if commit.p50 <= lone.latency.p50
            else "no longer than the smallest commit took by itself a moment before"
        )
        text = (
            f"A single run is limited by the commit: a step takes {step}, {alone}. What helps: "
            f"{_quicker(kind, address)}; or {share}."
        )
        return Limit("lone", "commit", text)
    if _is_cpu(kind, lone):
        return Limit(
            "lone", "cpu", f"A single run is limited by {_cpu(lone)}. What helps: {share}."
        )
    text = (
        f"A single run waits for {_waits_for(kind)}: of the {step} of a step the smallest "
        f"commit is {ms(commit.p50)}, and this process used {lone.cores_used:.0%} of a core. "
        f"What helps: {_quicker(kind, address)}; or {share}."
    )
    return Limit("lone", "store", text)


def _of_hundred(kind: str, many: Steps) -> Limit:
    begin = f"{many.runs} runs at once"
    if _is_cpu(kind, many):
        return Limit("hundred", "cpu", f"{begin} are limited by {_cpu(many)}. {_more(kind, many)}")
    text = (
        f"{begin} wait for {_waits_for(kind)}: this process used {many.cores_used:.0%} of a "
        f"core, and {many.per_commit:.0f} steps shared a commit, "
        f"with {many.commits / many.seconds:,.0f} commits per second. "
        f"What helps: {_QUICKER[kind]}; or still more runs at once."
    )
    return Limit("hundred", "store", text)


def _is_cpu(kind: str, steps: Steps) -> bool:
    """Return whether CPU is the limit. With a store in memory there is nothing else to wait for."""
    return steps.cores_used + steps.cores_waited_for >= BUSY or kind == "memory"


def _cpu(steps: Steps) -> str:
    if steps.cores_used >= BUSY or steps.cores_waited_for < 0.1:
        return (
            f"the CPU of this process: {steps.cores_used:.0%} of a core, {ms(steps.cpu_each)} "
            "per step"
        )
    wanted = steps.cores_used + steps.cores_waited_for
    return (
        f"the CPUs of this machine: this process got {steps.cores_used:.0%} of a core and could "
        f"have used {wanted:.0%}, but other processes had them"
    )


def _more(kind: str, steps: Steps) -> str:
    if steps.cores_used < BUSY:
        return "What helps: a machine with more cores, or with less other load."
    if kind in _ALONE:
        return "One process cannot do more, and this store is for one process."
    turns = ", though on one file they take turns to write" if kind == "sqlite" else ""
    return f"What helps: more worker processes{turns}."


def _quicker(kind: str, address: str) -> str:
    if kind == "sqlite" and "synchronous=normal" not in address.lower():
        return (
            f"{_QUICKER[kind]}, or synchronous=normal in the address, which may lose the last "
            "moments before a power loss"
        )
    return _QUICKER[kind]


def _waits_for(kind: str) -> str:
    return _WAITS_FOR.get(kind, "the server")


def ms(seconds: float) -> str:
    """Format milliseconds with a readable precision."""
    value = seconds * 1000
    return (
        f"{value:.3f} ms"
        if value < 0.1
        else f"{value:.2f} ms"
        if value < 10
        else f"{value:,.0f} ms"
    )
