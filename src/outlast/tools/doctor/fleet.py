"""Check what waits in the store, which workers can take it, and how the last drains ended."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from outlast.cli.hints import resume_queue
from outlast.settings.redaction import masked
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, counted, error, note, ok, warning

RECENT_SECONDS = 7 * 86_400.0


def store(facts: Facts) -> Iterator[Finding]:
    where = masked(facts.loaded.settings.store)
    if facts.store_fails:
        yield error(
            f"the store cannot be used: {facts.store_error}",
            "Fix this first: until then no worker here records anything.",
            where,
        )
    elif facts.store is None:
        yield note(f"the store could not be inspected: {facts.store_error}", where=where)
    elif facts.read_only:
        yield note(
            "the store can be opened and read. This user has read-only access: enough for the "
            "doctor, not for a worker.",
            where=where,
        )
    else:
        yield ok("the store can be opened and read.", where)


def runs(facts: Facts) -> Iterator[Finding]:
    found = facts.store
    if found is None:
        return
    trouble = False
    for queue in found.queues:
        where = f"queue {queue.name}"
        if queue.stuck:
            trouble = True
            yield error(
                f"{counted(queue.stuck, 'run')} cannot be compensated: "
                f"{'its' if queue.stuck == 1 else 'their'} effects are still in place.",
                "List them with `outlast runs --undoing --status parked`. `outlast show ID` says "
                "why. After fixing the cause, run `outlast retry ID`.",
                where,
            )
        if queue.dead:
            trouble = True
            yield warning(
                f"{counted(queue.dead, 'dead letter')}.",
                "List them with `outlast runs --status dead`. `outlast show ID` says why. Then run "
                "`outlast retry ID` or `outlast cancel ID`.",
                where,
            )
        if queue.parked > queue.stuck:
            trouble = True
            yield warning(
                f"{counted(waits := queue.parked - queue.stuck, 'run')} "
                f"{'waits' if waits == 1 else 'wait'} for a person.",
                "List them with `outlast runs --status parked`. `outlast show ID` says what to "
                "decide.",
                where,
            )
        if queue.gives_nothing and queue.queued:
            yield note(
                f"the queue is paused, and {counted(queue.queued, 'run')} "
                f"{'waits' if queue.queued == 1 else 'wait'} in it.",
                f"To resume it, run {resume_queue(queue, None)}.",
                where,
            )
        names = found.unknown.get(queue.name, ())
        if names and queue.name in found.unclaimed:
            trouble = True
            yield warning(
                f"runs of {', '.join(names[:5])} are ready, and no live worker claims from this "
                "queue.",
                f"Start a worker for it: `outlast worker MODULE --queue {quote(queue.name)}`.",
                where,
            )
        elif names:
            trouble = True
            yield warning(
                f"runs wait for workflows that no live worker knows: {', '.join(names[:5])}.",
                "Start a worker with the module that defines it, or restore its old name: "
                "@workflow(name=…).",
                where,
            )
        since = queue.returned_since
        if queue.returned and since is not None and found.now - since > facts.loaded.settings.lease:
            trouble = True
            yield warning(
                f"{counted(queue.returned, 'interrupted run')} "
                f"{'waits' if queue.returned == 1 else 'wait'}, the longest for "
                f"{found.now - since:.0f} s.",
                "Are there enough workers with free slots (`outlast workers`)? Is the queue "
                "limited (`outlast queues`)?",
                where,
            )
    if found.crashing is None:
        yield note(
            "an active run is damaged, so it is unknown which runs keep losing their workers.",
            "`outlast runs` says more.",
        )
    elif found.crashing:
        trouble = True
        ids = ", ".join(row.id for row in found.crashing[:5])
        runs = "1 run has" if len(found.crashing) == 1 else f"{len(found.crashing)} runs have"
        yield warning(
            f"{runs} lost several workers in a row with nothing recorded: {ids}.",
            "`outlast show ID` lists the deaths. If the code is to blame, roll back, or stop the "
            "claims with `outlast workflow pause NAME`.",
        )
    for name in found.paused:
        yield note(
            f"workflow {name} is paused. Workers leave its runs in their queues.",
            f"To resume it, run `outlast workflow resume {quote(name)}`.",
        )
    if not trouble:
        ready = sum(one.ready for one in found.queues)
        delayed = sum(one.delayed for one in found.queues)
        yield ok(f"no run is parked, dead or stuck; {ready} ready, {delayed} delayed.")


def workers(facts: Facts) -> Iterator[Finding]:
    found = facts.store
    if found is None:
        return
    if found.dead:
        seems, held = ("seems", "it held") if len(found.dead) == 1 else ("seem", "they held")
        yield warning(
            f"{counted(len(found.dead), 'worker')} {seems} dead, and what {held} has not been "
            f"taken over yet: {', '.join(sorted(map(str, found.dead))[:5])}.",
            "A live worker of this store takes over within a lease. Is there one?",
        )
    here = {one.id for one in found.workers}
    for one in found.stalls[:5]:
        yield warning(
            f"`{one.step}` blocked the event loop of a worker for {one.seconds:.1f} s, "
            f"{found.now - one.at:.0f} s ago, at {one.line}.",
            "Nothing else in that process could run meanwhile. Write the step as `def` instead of "
            "`async def`, and call it with `await NAME.aio(...)`: it then executes in a thread.",
            f"worker {one.worker}{'' if one.worker in here else ', which has ended'}",
        )
    alive = [one for one in found.workers if one.id not in found.dead]
    claiming = [one for one in alive if one.concurrency and not one.draining]
    due = sum(queue.ready for queue in found.queues)
    if not due or claiming or any(one.held for one in alive):
        if not found.dead and not found.stalls:
            yield ok(f"alive: {len(alive)}; claiming runs: {len(claiming)}.")
    elif alive:
        yield note(
            f"{due} {'is' if due == 1 else 'are'} queued, and no registered worker claims "
            "them. Consumers of items are not recorded.",
            "If they are runs, start a worker: outlast worker MODULE.",
        )
    else:
        yield warning(
            f"{counted(due, 'run')} {'is' if due == 1 else 'are'} queued, "
            "and no worker claims any.",
            "Start one: outlast worker MODULE.",
        )


def drains(facts: Facts) -> Iterator[Finding]:
    found = facts.store
    if found is None:
        return
    recent = [
        one
        for one in found.drains
        if one.began and found.now - one.began.timestamp() < RECENT_SECONDS
    ]
    cut = [one for one in recent if one.cut_short]
    stubborn = sorted({step for one in recent for step in one.not_checkpointed})
    if cut:
        yield error(
            f"{len(cut)} of the last {len(recent)} drains were cut short: the process was killed "
            "before its grace ended.",
            "The environment allows less than OUTLAST_GRACE: run `outlast doctor --manifest FILE`. "
            "`outlast drains` lists them.",
            f"worker {cut[0].worker}",
        )
    if stubborn:
        yield warning(
            f"steps that were asked to stop and did not: {', '.join(stubborn[:5])}.",
            "A thread cannot be cancelled: let it check current().draining, or await something "
            "that can be cancelled.",
        )
    if not cut and not stubborn:
        yield ok(
            f"{counted(len(recent), 'drain')} in the last week, none cut short."
            if recent
            else "no drain has been recorded yet."
        )
