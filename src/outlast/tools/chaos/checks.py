"""Check the runs of a store, and the ledger if there is one. Read-only, page by page.

    check(store, Scope(since=…)) -> Verdict

A run that changes during the check is read again. The check skips a run that keeps changing, so
work in flight on a live store raises no false alarm.
"""

from __future__ import annotations

from collections.abc import Iterator

from outlast.shutdown.report import DrainReport
from outlast.store.commands import DRAINS_MAX, ITEM
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, RunQuery, RunRow
from outlast.store.tolerant_rows import DAMAGE
from outlast.tools.chaos.findings import Findings, Scope
from outlast.tools.chaos.journal_audit import JournalAudit
from outlast.tools.chaos.ledger_summary import LedgerSummary
from outlast.tools.chaos.liveness_check import LiveWorkers, live_workers, under_way
from outlast.tools.chaos.verdict import Check, Verdict, percentiles

PAGE = 200
"""Runs or entries per read."""
OPEN = ("queued", "running", "waiting", "parked")
READS_MAX = 3
"""How often the check reads a run that keeps changing."""


def check(store: Store, scope: Scope) -> Verdict:
    """Return the verdict on every run in the scope. Write nothing."""
    found = Findings()
    wanted = set(scope.acknowledged) if scope.acknowledged is not None else None
    for page in _pages(store, scope):
        there = live_workers(store, scope)
        for row in page:
            found.there.add(row.id) if wanted is not None and row.id in wanted else None
            _examine(store, scope, found, there, row)
        scope.looked(found.runs + found.items + found.passed_over)
    _lost(found, wanted)
    _outside(scope, found)
    _recovery(scope, found)
    _drains(store, scope, found)
    _fences(found)
    looked_at = {
        "runs": found.runs,
        "items": found.items,
        "entries": found.entries,
        "skipped": found.passed_over,
        "still_changing": found.restless,
        "deaths": found.deaths,
        "interruptions": found.interruptions,
        **(
            {"ledger_lines": sum(scope.summary.counts.values())}
            if scope.summary is not None
            else {}
        ),
    }
    return Verdict(list(found.checks.values()), looked_at)


# -- what is checked


def _pages(store: Store, scope: Scope) -> Iterator[list[RunRow]]:
    """Yield the open runs, then the runs that ended since `scope.since`.

    A run that ends in between appears twice, but is never missed.
    """
    for queue in sorted(scope.queues) if scope.queues is not None else [None]:
        for query in (
            RunQuery(queue=queue, statuses=OPEN),
            RunQuery(queue=queue, ended_after=scope.since),
        ):
            before: int | None = None
            while page := store.runs(query._replace(limit=PAGE, before_pk=before)):
                yield page
                before = page[-1].pk


def _examine(store: Store, scope: Scope, found: Findings, there: LiveWorkers, row: RunRow) -> None:
    """Check one run. A damaged run is a violation and does not stop the check."""
    try:
        _check_row(store, scope, found, there, row)
    except DAMAGE as error:
        found["none lost"].violate(f"{row.id} cannot be read: {error!r}")


def _check_row(
    store: Store, scope: Scope, found: Findings, there: LiveWorkers, row: RunRow
) -> None:
    if _is_plain(row, scope):
        found.passed_over += 1
        return
    for _ in range(READS_MAX):
        audit = _audit(store, row)
        again = store.run(row.id)
        if again is None:
            # The run was pruned.
            found.passed_over += 1
            return
        if (again.pk, again.fence, again.status, again.lives) == (
            row.pk,
            row.fence,
            row.status,
            row.lives,
        ):
            break
        row = again
    else:
        found.restless += 1
        return
    audit.close(row)
    if row.workflow == ITEM:
        found.items += 1
    else:
        found.runs += 1
    found.entries += audit.count
    found.statuses[row.status] = found.statuses.get(row.status, 0) + 1
    _ended(store, scope, found, there, row, audit)
    _journal(store, scope, found, row, audit)
    _lives(scope, found, row, audit)


def _is_plain(row: RunRow, scope: Scope) -> bool:
    """Return whether the run finished in one execution and so cannot have lost anything.

    In a thorough check no run is skipped for that reason.
    """
    return (
        not scope.thorough
        and row.status == "done"
        and row.lives <= 1
        and not row.deaths
        and not row.interruptions
    )


def _audit(store: Store, row: RunRow) -> JournalAudit:
    audit = JournalAudit()
    after = 0
    while page := store.journal(row.pk, after=after, limit=PAGE):
        for entry in page:
            audit.add(entry)
        after = page[-1].seq
    return audit


# -- the checks


def _ended(
    store: Store,
    scope: Scope,
    found: Findings,
    there: LiveWorkers,
    row: RunRow,
    audit: JournalAudit,
) -> None:
    ended = found["ended"]
    stuck = found["dead letters and parked"]
    ended.looked_at += 1
    stuck.looked_at += 1
    if row.status in ("dead", "parked"):
        when = max(audit.last_at, row.ended or 0.0, row.started or 0.0, row.created)
        if when >= scope.since:
            what = (
                "is a dead letter"
                if row.status == "dead"
                else "is parked" + (" during its compensation" if row.undoing else "")
            )
            stuck.violate(f"{row.id} {what}: {row.reason}")
        return
    if row.status in ENDED:
        if (wrong := scope.amiss(row)) is not None:
            ended.violate(f"{row.id} {wrong}")
    elif scope.over:
        ended.violate(
            f"{row.id} is {row.status}: {row.lives} lives, {row.deaths} deaths, due "
            f"{row.due - store.now():+.1f} s, {row.reason or ''}"
        )
    else:
        under_way(store, scope, found, there, row)


def _journal(store: Store, scope: Scope, found: Findings, row: RunRow, audit: JournalAudit) -> None:
    for name, texts in (
        ("none lost", audit.damage),
        ("no action twice", audit.effects.twice),
        ("no stale fence", audit.fences.stale),
        ("compensated", audit.effects.disorder),
    ):
        for text in texts:
            found[name].violate(f"{row.id}: {text}")
    found["none lost"].looked_at += 1
    found["no action twice"].looked_at += len(audit.effects.keys)
    found["no stale fence"].looked_at += audit.count
    if audit.count and not audit.fences.fenced:
        found.unfenced += 1
    if row.status in ("done", "failed", "cancelled") and row.workflow != ITEM:
        _undone(store, found, row, audit)
    if scope.summary is not None:
        _agree(scope.summary, found, row, audit)


def _undone(store: Store, found: Findings, row: RunRow, audit: JournalAudit) -> None:
    compensated = found["compensated"]
    compensated.looked_at += 1
    found.abandoned += row.status == "failed" and "Abandoned" in (row.error or "")
    for effect_record in audit.effects.log.opened:
        compensated.violate(
            f"{row.id} is {row.status}, but the outcome of {effect_record.place} is unknown "
            f"(entry {effect_record.intent})"
        )
    to_undo = audit.effects.log.undoable
    if row.status != "done":
        why = f"is {row.status}"
    elif row.parent is not None and to_undo:
        parent = store.run(row.parent)
        if parent is None or parent.status not in ("failed", "cancelled"):
            return
        why = f"is done and its parent {parent.id} is {parent.status}"
    else:
        return
    for effect_record in to_undo:
        if not effect_record.by_hand:
            compensated.violate(
                f"{row.id} {why}, but {effect_record.place} happened (entry {effect_record.first}) "
                "and was not compensated"
            )


def _agree(summary: LedgerSummary, found: Findings, row: RunRow, audit: JournalAudit) -> None:
    """Check that the journal and the ledger agree on what happened."""
    lost = found["none lost"]
    stuck = found["compensated"]
    acted = summary.of_run.get(row.id, set())
    if row.workflow == ITEM:
        if row.status == "done" and not acted:
            lost.violate(f"{row.id} is done, but the ledger received no request of it")
        return
    for key in sorted(acted - audit.effects.keys):
        lost.violate(f"{row.id}: the ledger has {key}, but no entry of the run intended it")
    for key in sorted(
        acted
        & audit.effects.keys
        - {effect_record.key for effect_record in audit.effects.log.records.values()}
    ):
        if summary.balance[key]:
            found["no action twice"].violate(
                f"{row.id}: the ledger has {key}, but its call was intended again under another key"
            )
    for key in sorted(audit.effects.outcomes):
        if summary.reports(key) and not summary.begun.get((row.id, key)):
            lost.violate(f"{row.id}: {key} has a result, but the ledger never saw its body start")
    if row.status not in ("done", "failed", "cancelled"):
        return
    for effect_record in audit.effects.log.records.values():
        if (
            effect_record.kind != "intent"
            or not effect_record.intent
            or effect_record.unsure
            or effect_record.by_hand
        ):
            continue
        if bool(effect_record.happened) != (effect_record.key in summary.done):
            lost.violate(
                f"{row.id}: {effect_record.place} happened according to the journal: "
                f"{effect_record.happened}, to the ledger: {effect_record.key in summary.done}"
            )
        balance = 1 if effect_record.happened and effect_record.undone is None else 0
        if (
            not effect_record.place.startswith("undo:")
            and summary.balance[effect_record.key] != balance
        ):
            stuck.violate(
                f"{row.id}: the ledger has {effect_record.place} "
                f"{summary.balance[effect_record.key]} times instead of {balance}"
            )


def _lives(scope: Scope, found: Findings, row: RunRow, audit: JournalAudit) -> None:
    found.deaths += sum(end.kind == "death" for end in audit.times.ends)
    found.interruptions += sum(end.kind == "interruption" for end in audit.times.ends)
    if scope.recovered is not None:
        pairs = zip(audit.times.ends, [*audit.times.ends[1:], None], strict=False)
        timed = [
            (end, scope.recovered(row.id, end, following))
            for end, following in pairs
            if end.at >= scope.since
        ]
    else:
        timed = [
            (one.end, one.seconds) for one in audit.times.recoveries if one.end.at >= scope.since
        ]
        found.untimed += audit.times.untimed
    for end, seconds in timed:
        if seconds is None:
            found.untimed += 1
            continue
        found.recoveries[end.kind].append(seconds)
        if seconds > scope.objective:
            found["recovery"].violate(
                f"{row.id} continued {seconds:.1f} s after its {end.kind} (entry {end.seq}: "
                f"{end.why})"
            )
    if scope.summary is not None:
        _redone(scope.summary, found["redone"], row, audit)


def _redone(summary: LedgerSummary, redone: Check, row: RunRow, audit: JournalAudit) -> None:
    for key, fence in audit.effects.outcomes.items():
        times = summary.begun.get((row.id, key), [])
        redone.looked_at += len(times)
        later = [began for _, began in times if fence and began > fence]
        if later:
            redone.violate(
                f"{row.id}: {key} started under fence {later[0]}, after its result was recorded "
                f"under {fence}"
            )
        if len(times) != len(set(times)):
            redone.violate(f"{row.id}: {key} started twice in one attempt of one life: {times}")


# -- checks that need every run


def _lost(found: Findings, wanted: set[str] | None) -> None:
    lost = found["none lost"]
    if wanted is None:
        lost.is_unknown("whether everything acknowledged is there: only the submitter knows")
        return
    lost.looked_at += len(wanted)
    for id in sorted(wanted - found.there):
        lost.violate(f"{id} was acknowledged and is not in the store")


def _outside(scope: Scope, found: Findings) -> None:
    twice = found["no action twice"]
    stale = found["no stale fence"]
    redone = found["redone"]
    summary = scope.summary
    if summary is None:
        twice.is_unknown("what happened outside the store: there is no ledger")
        stale.is_unknown("whether a step acted outside under an old fence: there is no ledger")
        redone.is_unknown(
            "which steps were executed again: the start of a step is not recorded, and there is no "
            "ledger"
        )
        return
    for text in summary.twice:
        twice.violate(text)
    for text in summary.stale:
        stale.violate(text)
    twice.looked_at += summary.counts["act"] + summary.counts["undo"]
    twice.facts |= {
        "done": summary.counts["act"],
        "undone": summary.counts["undo"],
        "repeats_answered": summary.counts["repeat"],
    }
    stale.facts["stale_writers_refused"] = summary.counts["refused"]
    redone.facts["bodies_begun"] = summary.counts["began"]
    redone.facts["bodies_begun_again"] = summary.redone


def _recovery(scope: Scope, found: Findings) -> None:
    recovery = found["recovery"]
    all_of_them = [one for some in found.recoveries.values() for one in some]
    recovery.looked_at = len(all_of_them)
    recovery.facts |= {
        "objective": scope.objective,
        **percentiles(all_of_them),
        **{kind: percentiles(values) for kind, values in found.recoveries.items()},
        "not_timed": found.untimed,
    }
    found["compensated"].facts |= {
        "failed": found.statuses.get("failed", 0),
        "cancelled": found.statuses.get("cancelled", 0),
        "abandoned": found.abandoned,
    }
    if found.untimed and not all_of_them:
        recovery.is_unknown(
            f"how soon the runs of {found.untimed} lost lives continued: nothing recorded "
            "shows when the next life began"
        )
    ended = found["ended"]
    ended.facts |= {"statuses": dict(sorted(found.statuses.items()))}
    if not scope.over:
        ended.facts |= {"waiting_for_a_slot": found.backlog, "suspects_waiting": found.suspects}
        if found.nobody:
            ended.is_unknown(
                f"{found.nobody} runs have been due for more than {scope.objective:g} s, "
                "and no live worker claims them (unknown workflow, or no worker)"
            )


def _fences(found: Findings) -> None:
    if found.unfenced:
        found["no stale fence"].is_unknown(
            f"the fences of {found.unfenced} runs: the store does not say under which fence their "
            "entries were written"
        )


def _drains(store: Store, scope: Scope, found: Findings) -> None:
    """Check that no drain on record was cut short.

    Skip this after an experiment (`scope.over`). Chaos knows which drains it interrupted and times
    the drains itself.
    """
    drains = found["drains"]
    if scope.over:
        return
    rows = [row for row in store.drains(DRAINS_MAX) if (row.ended or row.began) >= scope.since]
    drains.looked_at = len(rows)
    seconds = []
    for row in rows:
        report = DrainReport.of(row)
        if row.ended is not None and report.cut_short:
            why = report.left[0].why if report.left else ""
            drains.violate(
                f"worker {row.worker} on {row.host} exited before its drain ended: {why}; it "
                f"left {len(report.left)} runs"
            )
        elif row.ended is not None:
            seconds.append(row.ended - row.began)
    drains.facts["seconds"] = percentiles(seconds)
    if len(rows) >= DRAINS_MAX:
        drains.is_unknown(f"older drains: the store keeps only the last {DRAINS_MAX}")
