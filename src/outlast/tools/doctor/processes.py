"""Check whether SIGTERM reaches the workers of this host."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, error, note, ok, warning
from outlast.tools.doctor.host import SHELLS, Process

NAMED_MAX = 5
TELL_ALL = {"systemd", "init", "launchd"}
"""As PID 1 these signal every process of a service, not only the first."""


def signals(facts: Facts) -> Iterator[Finding]:
    """Check the workers' processes, not the doctor's own.

    The doctor always has a shell above it.
    """
    settings = facts.loaded.settings
    if not settings.signals:
        yield warning(
            "signals=0: SIGTERM and SIGINT begin no drain.",
            "Set OUTLAST_SIGNALS=1, unless the program calls app.drain() in a handler of its own.",
        )
    if not facts.has_proc:
        yield note(
            "this system has no /proc: whether a shell keeps SIGTERM from the workers is unknown."
        )
        return
    if not facts.processes:
        yield note(
            "no worker of this host is visible from here.",
            "Run the doctor where a worker runs, or with --manifest FILE.",
        )
        return
    fine = []
    for worker, chain in sorted(facts.processes.items()):
        if (problem := _of(worker, chain)) is None:
            fine.append(worker)
        else:
            yield problem
    if fine:
        what = "the worker" if len(fine) == 1 else f"{len(fine)} workers"
        more = f" and {len(fine) - NAMED_MAX} more" if len(fine) > NAMED_MAX else ""
        yield ok(
            f"SIGTERM reaches {what} and begins a drain.",
            f"worker{'' if len(fine) == 1 else 's'} {', '.join(fine[:NAMED_MAX])}{more}",
        )


def _of(worker: str, chain: tuple[Process, ...]) -> Finding | None:
    """Return what keeps SIGTERM from this worker, or None."""
    own = chain[0]
    last = chain[-1]
    where = f"worker {worker}, pid {own.pid}"
    if own.ignores_term:
        return error(
            "this worker ignores SIGTERM: the process that started it ignored it (in a shell: "
            "trap '' TERM).",
            "Start it where SIGTERM is not ignored: from a script without that trap, or by a "
            "service manager.",
            where,
        )
    if last.pid == 1 and last is not own and last.name in SHELLS:
        return error(
            f"PID 1 is a shell ({last.name}): it gets SIGTERM, does not pass it on, and the worker "
            "is killed when its time is up.",
            'Use the exec form, ["outlast", "worker", …], or `exec outlast worker …` in a script.',
            where,
        )
    if _waits_in_front(chain):
        return warning(
            f"a shell (pid {chain[1].pid}) is between PID 1 ({last.name}) and the worker: SIGTERM "
            "stops at the shell, so the worker never drains and is killed when its time is up.",
            "Write `exec outlast worker …` in the script.",
            where,
        )
    if not own.catches_term:
        return warning(
            "this worker has no handler for SIGTERM: it ends without a drain.",
            "Open Outlast in the main thread, with signals=1; or call app.drain() in a handler of "
            "your own.",
            where,
        )
    return None


def _waits_in_front(chain: tuple[Process, ...]) -> bool:
    """Return whether only shells with a command line or a script are between PID 1 and the worker.

    A person's interactive shell has neither.
    """
    between = chain[1:-1]
    first = chain[-1]
    if not between or first.pid != 1 or first.name in TELL_ALL:
        return False
    return all(
        one.name in SHELLS and any(not word.startswith("-") for word in one.command[1:])
        for one in between
    )
