"""Lay out `outlast show` for people: the run's identity, its history and its current state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from outlast.cli.effect_view import effect_lines, standing, still_open, to_decide, to_raise
from outlast.cli.grid import GAP
from outlast.cli.hints import (
    command,
    diverged,
    noun,
    short_reason,
    taken_up,
    waits_for_a_person,
)
from outlast.cli.output import where_explained
from outlast.cli.screen import Screen
from outlast.cli.table import STYLES, status_text
from outlast.cli.text import counted, moment, one_line, recorded, recorded_error, safe, span
from outlast.codec.documents import value_of
from outlast.engine.documents import waits_of
from outlast.engine.effect_text import Tone
from outlast.engine.entry_text import describe_entry
from outlast.engine.executing_steps import ExecutingStep
from outlast.engine.inspection import explained
from outlast.engine.journal_view import History
from outlast.errors.reasons import EXHAUSTED, STUCK
from outlast.execution.run_cost import RunCost
from outlast.store.commands import EACH, ITEM
from outlast.store.fleet import Fleet
from outlast.store.rows import ATTEMPTS_FACTOR_MAX, NEVER, RunRow, WorkerRow

KEY_WIDTH_MAX = 48
TONES = {Tone.PLAIN: "", Tone.BAD: "red", Tone.HISTORY: "yellow"}
SUSPECT = 2
"""The value of `RunRow.ready` for a suspect."""


def timeline_lines(
    history: History,
    fleet: Fleet,
    executing: Sequence[ExecutingStep] = (),
    *,
    store: str | None,
    full: bool,
) -> Iterator[Text]:
    screen = Screen.of(full=full)
    row = history.row
    title = Text(safe(row.id), "bold")
    title.append("  ")
    title.append(safe(status_text(row, fleet.now)), STYLES.get(status_text(row, fleet.now), ""))
    yield title
    for name, value in _header(history, fleet, screen.value_width):
        yield Text(f"  {name:<10} {value}")
    if history.entries:
        yield Text()
        yield from _lines(history, screen)
    began = row.started if row.started is not None else row.created
    for number, line in enumerate(effect_lines(history, began, wide=full)):
        if number == 0:
            yield Text()
        yield Text("  ").append_text(line)
    yield Text()
    for text in (
        *_standing(history, fleet, store, screen.value_width),
        *_executing(executing, fleet.now),
        *_costs(history.account),
    ):
        yield from screen.wrapped(text)
    if full and row.error is not None:
        error = value_of(row.error)
        trace = str(error.get("traceback") or "") if isinstance(error, dict) else ""
        if trace:
            yield Text()
        for text in trace.splitlines():
            yield Text(f"  {safe(text)}".rstrip())


def _header(history: History, fleet: Fleet, value_width: int | None) -> Iterator[tuple[str, str]]:
    row = history.row
    now = fleet.now
    if history.done is not None:
        args = value_of(row.args)
        yield "form", safe(str(args.get("form", "each")) if isinstance(args, dict) else "each")
        yield (
            "items",
            f"{history.done:,}" + (f" of {history.total:,}" if history.total else "") + " done",
        )
    elif row.workflow == ITEM:
        yield "item", "a plain work item (no workflow)"
        yield "payload", recorded(row.args, value_width)
    else:
        yield "workflow", safe(row.workflow)
        yield "args", recorded(row.args, value_width)
    if row.parent is not None:
        yield "parent", safe(row.parent)
    yield "queue", safe(row.queue) + (f", priority {row.priority}" if row.priority else "")
    if row.key is not None:
        yield "key", one_line(row.key)
    by = "" if row.by is None else f" by {one_line(row.by)}"
    yield "created", f"{moment(row.created)} ({_ago(now - row.created)}){by}"
    if row.started is not None:
        yield "started", f"{moment(row.started)} ({span(row.started - row.created)} later)"
    if row.ended is not None:
        since = row.started if row.started is not None else row.created
        yield "ended", f"{moment(row.ended)} ({span(row.ended - since)} later)"
    elif row.deadline is not None:
        yield "deadline", moment(row.deadline)
    if row.worker is not None:
        holder = next((worker for worker in fleet.workers if worker.id == row.worker), None)
        yield "worker", _worker(row.worker, holder, row.worker in fleet.dead)
        yield "fence", f"{abs(row.fence)} (writes with a lower fence are rejected)"
    elif history.executions:
        yield "worker", _last_worker(history)
    if row.deaths or row.interruptions or row.failures:
        yield "incidents", _incidents(row)


def _incidents(row: RunRow) -> str:
    counts = []
    if row.deaths:
        limit = (
            ""
            if row.status == "dead"
            else f"; it becomes a dead letter after {row.attempts_max} to "
            f"{row.attempts_max * ATTEMPTS_FACTOR_MAX}, depending on how many other workers are "
            "dying"
        )
        in_a_row = f" ({row.deaths_in_a_row} in a row with nothing recorded{limit})"
        counts.append(counted(row.deaths, "death") + (in_a_row if row.deaths_in_a_row else ""))
    if row.interruptions:
        counts.append(counted(row.interruptions, "interruption"))
    if row.failures:
        counts.append(f"{counted(row.failures, 'failure')} of at most {row.attempts_max}")
    return ", ".join(counts)


def _worker(id: str, worker: WorkerRow | None, dead: bool) -> str:
    where = f" (process {worker.pid} on {safe(worker.host)})" if worker is not None else ""
    return f"{safe(id)}{where}" + (", dead" if dead else "")


def _last_worker(history: History) -> str:
    """Return the worker of the last execution of a run that no worker holds."""
    last = history.executions[-1]
    worker = f"{safe(last.worker)} (process {last.pid} on {safe(last.host)})"
    return worker if history.row.ended is not None else f"none now; the last was {worker}"


def _lines(history: History, screen: Screen) -> Iterator[Text]:
    began = history.row.started if history.row.started is not None else history.row.created
    times = [f"+{span(entry.at - began)}" for entry in history.entries]
    keys = [safe(entry.key) for entry in history.entries]
    time_width = max(map(len, times))
    seq_width = len(str(history.entries[-1].seq))
    kind_width = max(cell_len(safe(entry.kind)) for entry in history.entries)
    key_width = min(KEY_WIDTH_MAX, max(map(cell_len, keys)))
    for entry, time, key in zip(history.entries, times, keys, strict=True):
        what, tone = describe_entry(entry, history, screen.value_width, began)
        kind = safe(entry.kind)
        head = Text(f"  {time:>{time_width}}  {entry.seq:>{seq_width}}  {kind}")
        head.append(" " * (kind_width - cell_len(kind)) + GAP)
        head.append(key + " " * max(0, key_width - cell_len(key)) + GAP)
        description = Text(what, TONES[tone])
        void = entry.seq in history.void
        if void:
            description.append("  (void since the retry)", "default")
        for line in screen.hung(head, description):
            if void:
                line.stylize("dim")
            line.rstrip()
            yield line


def _standing(
    history: History, fleet: Fleet, store: str | None, value_width: int | None
) -> Iterator[str]:
    """Yield where the run stopped or what it waits for now, and what to do."""
    row = history.row
    yield from _status(row, fleet, store, value_width)
    yield from standing(history)
    yield from still_open(history, fleet.now)
    yield from to_decide(history, store, value_width)
    yield from to_raise(history, store)
    if row.ended is None:
        yield from _waits(history, store)
    if row.status in ("queued", "waiting"):
        yield safe(taken_up(row, fleet, store))
    if (name := explained(row)) is not None:
        yield where_explained(name)


def _waits(history: History, store: str | None) -> Iterator[str]:
    """Yield what a run that has not ended waits for."""
    row = history.row
    if row.cancel is not None:
        yield f"Cancellation requested: {one_line(row.cancel)}"
    for key, entry in history.retrying.items():
        if key in history.effects:
            # The effects table already lists them.
            continue
        yield f"Retrying {safe(key)}: attempt {(entry.attempt or 0) + 1}."
    sent = {message.name for message in history.unread}
    for name in waits_of(row):
        if name in sent:
            yield f"The message that the run waits for has arrived: {safe(name)}."
        else:
            send = command("send", row.id, name, "JSON", store=store)
            yield f"The run waits for a message: {send}."
    if history.unread:
        names = sorted({safe(message.name) for message in history.unread})
        yield f"{counted(len(history.unread), 'message')} not received yet: {', '.join(names)}."


def _status(row: RunRow, fleet: Fleet, store: str | None, value_width: int | None) -> Iterator[str]:
    reason = one_line(row.reason) if row.reason else ""
    at = f" (entry {row.failed_at})" if row.failed_at is not None else ""
    child = row.parent is not None and row.undoing is None and row.workflow != EACH
    retried = row.parent if child and row.parent is not None else row.id
    retry = (
        "After fixing the cause, run "
        f"{command('retry', retried, store=store)}{' (its parent)' if child else ''}."
    )
    if row.status == "done":
        yield f"Done: {recorded(row.value, value_width)}"
    elif row.status == "failed":
        length = None if value_width is None else 4 * value_width
        yield f"Failed{at}: {recorded_error(row.error, length) if row.error else reason}"
        yield retry
    elif row.status == "dead":
        yield f"Dead letter: {reason}"
        yield f"{retry} To give it up, run {command('cancel', row.id, store=store)}."
    elif row.status == "cancelled":
        yield f"Cancelled{at}: {reason}"
    elif row.status == "parked":
        yield f"Parked: {short_reason(row)}"
        if (row.reason or "").startswith(EXHAUSTED):
            yield "A person has to raise the budget, or cancel the run."
        elif waits_for_a_person(row) and not (row.reason or "").startswith(STUCK):
            yield (
                "A person has to decide. If the effect has a verify, "
                f"{command('resume', row.id, store=store)} calls it again."
            )
        else:
            # A unit's failed compensation stops a run that has not ended.
            again = "retry" if row.undoing is not None else "resume"
            first = (
                "Restore the old code or fix the new one, and stop the workers whose code does "
                "not match. Then run "
                if diverged(row)
                else "After fixing the cause, run "
            )
            yield f"{first}{command(again, row.id, store=store)}."
    elif row.status == "running":
        if row.worker in fleet.dead:
            yield (
                "Its process died. "
                f"{safe(taken_up(row, fleet, store, to='continue from the last recorded step'))}"
            )
        else:
            yield "Running."
    else:
        yield f"{_state(row, reason)}.{_due(row, fleet.now)}"
        if row.ready == SUSPECT:
            yield "It died more than once with nothing recorded, so a worker executes it alone."


def _state(row: RunRow, reason: str) -> str:
    if row.status == "waiting":
        return f"Waiting. No worker holds the {noun(row)}"
    if row.started is None:
        return "Not started yet"
    now = f"No worker is executing this {noun(row)}"
    if not reason:
        return now
    # The reasons of a store begin with "its worker".
    after = reason.removeprefix("its worker")
    return f"{now}: its last worker{after}" if after != reason else f"{now}: {reason}"


def _due(row: RunRow, now: float) -> str:
    if not now < row.due < NEVER:
        return ""
    what = "Its next timer fires" if row.status == "waiting" else f"The {noun(row)} is due"
    return f" {what} in {span(row.due - now)}."


def _executing(steps: Sequence[ExecutingStep], now: float) -> Iterator[str]:
    for step in steps:
        attempt = f", attempt {step.attempt}" if step.attempt > 1 else ""
        since = span(max(0.0, now - step.started))
        yield f"Executing {safe(step.kind)} {safe(step.key)} for {since}{attempt}."


def _costs(account: RunCost) -> Iterator[str]:
    if account.spent:
        yield f"Spent {account.spent}."
    if account.saved:
        yield (
            f"Saved {account.saved}: recorded before a death or an interruption, so not spent "
            "again."
        )


def _ago(seconds: float) -> str:
    return f"{span(max(0.0, seconds))} ago"
