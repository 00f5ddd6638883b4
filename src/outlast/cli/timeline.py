"""Lay out `outlast show` for people: the run's identity, its history and its current state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.cells import cell_len
from rich.text import Text

from outlast.cli.documents import explained, value_of, waits_of
from outlast.cli.effect_view import cost_of, effect_lines, standing, still_open, to_decide, told
from outlast.cli.hints import command, short_reason, taken_up, waits_for_a_person
from outlast.cli.history import History
from outlast.cli.output import console, where_explained
from outlast.cli.session_entries import is_refused, session_words
from outlast.cli.table import STYLES, status_shown
from outlast.cli.text import moment, one_line, recorded, recorded_error, safe, short, span
from outlast.errors.reasons import STUCK
from outlast.execution.call_site import child_id
from outlast.execution.compensation import CHILDREN
from outlast.execution.effects_from_journal import UNDO
from outlast.execution.run_cost import RunCost
from outlast.settings import Settings
from outlast.store.commands import EACH, ITEM
from outlast.store.fleet import Fleet
from outlast.store.rows import NEVER, Entry, RunRow, WorkerRow

SHORT = 100
SHORT_MIN = 40
KEY_WIDTH_MAX = 48
SUSPECT = 2
"""The value of `RunRow.ready` for a suspect."""

BAD = "red"
HISTORY = "yellow"


def timeline_lines(
    history: History,
    fleet: Fleet,
    *,
    store: str | None,
    full: bool,
) -> Iterator[Text]:
    out = console()
    row = history.row
    room = None if full else max(SHORT_MIN, out.width - 20) if out.is_terminal else SHORT
    title = Text(safe(row.id), "bold")
    title.append("  ")
    title.append(safe(status_shown(row, fleet.now)), STYLES.get(status_shown(row, fleet.now), ""))
    yield title
    for name, value in _header(history, fleet, room):
        yield Text(f"  {name:<10} {value}")
    if history.entries:
        yield Text()
        yield from _lines(history, room)
    began = row.started if row.started is not None else row.created
    for number, line in enumerate(effect_lines(history, began, room)):
        if number == 0:
            yield Text()
        yield Text("  ").append_text(line)
    yield Text()
    for text in (*_standing(history, fleet, store, room), *_costs(history.account)):
        yield Text(text)
    if full and row.error is not None:
        error = value_of(row.error)
        trace = str(error.get("traceback") or "") if isinstance(error, dict) else ""
        if trace:
            yield Text()
        for text in trace.splitlines():
            yield Text(f"  {safe(text)}".rstrip())


def _header(history: History, fleet: Fleet, room: int | None) -> Iterator[tuple[str, str]]:
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
        yield "payload", recorded(row.args, room)
    else:
        yield "workflow", safe(row.workflow)
        yield "args", recorded(row.args, room)
    if row.parent is not None:
        yield "parent", safe(row.parent)
    yield "queue", safe(row.queue) + (f", priority {row.priority}" if row.priority else "")
    yield "created", f"{moment(row.created)} ({_ago(now - row.created)})"
    if row.started is not None:
        yield "started", f"{moment(row.started)} ({span(row.started - row.created)} after)"
    if row.ended is not None:
        since = row.started if row.started is not None else row.created
        yield "ended", f"{moment(row.ended)} ({span(row.ended - since)} after its start)"
    elif row.deadline is not None:
        yield "deadline", moment(row.deadline)
    if row.worker is not None:
        holder = next((worker for worker in fleet.workers if worker.id == row.worker), None)
        yield "worker", _worker(row.worker, holder, row.worker in fleet.dead)
    yield (
        "fence",
        str(abs(row.fence))
        + (
            "" if row.worker is not None or not row.fence else " (void, because no worker holds it)"
        ),
    )
    if row.deaths or row.interruptions or row.failures:
        yield "incidents", _incidents(row)


def _incidents(row: RunRow) -> str:
    deaths = _count(row.deaths, "death")
    if row.deaths_in_a_row:
        deaths += (
            f" ({row.deaths_in_a_row} of at most {row.attempts_max} in a row without a new entry)"
        )
    counts = [deaths, _count(row.interruptions, "interruption")]
    if row.workflow == ITEM:
        counts.append(f"{_count(row.failures, 'failure')} of at most {row.attempts_max}")
    return ", ".join(counts)


def _worker(id: str, worker: WorkerRow | None, dead: bool) -> str:
    where = f" (process {worker.pid} on {safe(worker.host)})" if worker is not None else ""
    return f"{safe(id)}{where}" + (", dead" if dead else "")


def _lines(history: History, room: int | None) -> Iterator[Text]:
    began = history.row.started if history.row.started is not None else history.row.created
    entries = [entry for entry in history.entries if history.has_children or entry.key != CHILDREN]
    if not entries:
        return
    keys = [safe(entry.key) for entry in entries]
    width = min(KEY_WIDTH_MAX, max(map(cell_len, keys)))
    seq_width = len(str(entries[-1].seq))
    for entry, key in zip(entries, keys, strict=True):
        what, style = _happened(entry, history, room, began)
        void = entry.seq in history.void
        line = Text(
            f"  {'+' + span(entry.at - began):>12}  {entry.seq:>{seq_width}}  "
            f"{safe(entry.kind):<12}  "
        )
        line.append(key + " " * max(0, width - cell_len(key)))
        line.append(f"  {what}", style)
        if void:
            line.append("  (void since the retry)")
            line.stylize("dim")
        line.rstrip()
        yield line


def _happened(entry: Entry, history: History, room: int | None, began: float) -> tuple[str, str]:
    """Return what an entry says, and its style."""
    value = value_of(entry.value) if entry.kind not in ("step", "child", "inner") else None
    facts = value if isinstance(value, dict) else {}
    if (of_effect := told(entry, facts, history, room)) is not None:
        if entry.seq in history.cut_off:
            worker = one_line(history.cut_off[entry.seq])
            return f"{of_effect[0]}; worker {worker} died before its outcome was recorded", BAD
        return of_effect
    if entry.kind == "attempt":
        error = recorded_error(entry.error, room) if entry.error else ""
        due = f"; next at +{span(value - began)}" if isinstance(value, (int, float)) else ""
        return (
            f"attempt {entry.attempt} failed{_took(entry)}{cost_of(entry)}: {error}{due}",
            HISTORY,
        )
    if entry.kind == "message":
        message = history.mail.get(value) if isinstance(value, int) else None
        return (f"received {recorded(message.value, room)}" if message else "received"), ""
    if entry.kind == "session" and entry.error is None:
        return session_words(entry, room), HISTORY if is_refused(entry) else ""
    if entry.kind == "items":
        return f"it processes {_fact(facts, 'total', room)} items", ""
    if entry.kind == "fired":
        return "a timer fired", ""
    if entry.kind == "cancel":
        return f"cancellation requested: {_fact(facts, 'why', room)}", HISTORY
    if entry.kind == "death":
        worker = _fact(facts, "worker", room)
        after = history.takeovers[entry.seq]
        return f"{_fact(facts, 'why', room)} (worker {worker}); {after}", BAD
    if entry.kind == "interruption":
        return f"{_fact(facts, 'why', room)}; {history.takeovers[entry.seq]}", HISTORY
    if entry.kind == "failure":
        return _fact(facts, "why", room), HISTORY
    if entry.kind == "child" and not entry.key.startswith(UNDO):
        return _child(entry, history.row, room)
    if entry.kind == "retry":
        start = history.cuts.get(entry.seq)
        redo = (
            f"entries from {start} on are void" if start is not None else "nothing recorded is void"
        )
        return f"queued again; it was {_fact(facts, 'was', room)}; {redo}", HISTORY
    if entry.kind == "resume":
        return f"queued again; it was {_fact(facts, 'was', room)}", HISTORY
    tries = f"attempt {entry.attempt}, " if (entry.attempt or 1) > 1 else ""
    took = f"{tries}{span(entry.seconds)}{cost_of(entry)}  " if entry.seconds is not None else ""
    asked = " (asked to stop)" if entry.asked else ""
    if entry.error is not None:
        return f"{took}{recorded_error(entry.error, room)}{asked}", BAD
    return f"{took}{recorded(entry.value, room)}{asked}", ""


def _child(entry: Entry, row: RunRow, room: int | None) -> tuple[str, str]:
    """Return which child ended and how, and the style."""
    child = safe(child_id(row.id, entry.key, Settings.load({}).id_length_max))
    if entry.error is not None:
        return f"run {child} ended with {recorded_error(entry.error, room)}", BAD
    return f"run {child} returned {recorded(entry.value, room)}", ""


def _standing(history: History, fleet: Fleet, store: str | None, room: int | None) -> Iterator[str]:
    """Yield where the run stopped or what it waits for now, and what to do."""
    row = history.row
    yield from _status(row, fleet, store, room)
    if (name := explained(row)) is not None:
        yield where_explained(name)
    yield from standing(history)
    yield from still_open(history, fleet.now)
    yield from to_decide(history, store, room)
    if row.ended is not None:
        return
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
            yield f"The message that it waits for has arrived: {safe(name)}."
        else:
            yield f"It waits for a message: {command('send', row.id, name, 'JSON', store=store)}."
    if history.unread:
        names = sorted({safe(message.name) for message in history.unread})
        yield f"{_count(len(history.unread), 'message')} not received yet: {', '.join(names)}."


def _status(row: RunRow, fleet: Fleet, store: str | None, room: int | None) -> Iterator[str]:
    reason = one_line(row.reason) if row.reason else ""
    at = f" (entry {row.failed_at})" if row.failed_at is not None else ""
    child = row.parent is not None and row.undoing is None and row.workflow != EACH
    retried = row.parent if child and row.parent is not None else row.id
    retry = (
        "After fixing the cause: "
        f"{command('retry', retried, store=store)}{' (its parent)' if child else ''}."
    )
    if row.status == "done":
        yield f"Done: {recorded(row.value, room)}"
    elif row.status == "failed":
        length = None if room is None else 4 * room
        yield f"Failed{at}: {recorded_error(row.error, length) if row.error else reason}"
        yield retry
    elif row.status == "dead":
        yield f"Dead letter: {reason}"
        yield f"{retry} To cancel it: {command('cancel', row.id, store=store)}."
    elif row.status == "cancelled":
        yield f"Cancelled{at}: {reason}"
    elif row.status == "parked":
        yield f"Parked: {short_reason(row)}"
        if waits_for_a_person(row) and not (row.reason or "").startswith(STUCK):
            yield (
                "A person has to decide. To run verify again, if it has one: "
                f"{command('resume', row.id, store=store)}."
            )
        # A unit's failed compensation stops a run that has not ended.
        else:
            again = "retry" if row.undoing is not None else "resume"
            yield f"After fixing the cause: {command(again, row.id, store=store)}."
    elif row.status == "running":
        if row.worker in fleet.dead:
            yield (
                "Its process died. "
                f"{safe(taken_up(row, fleet, store, to='continue from the last recorded step'))}"
            )
        else:
            yield "Running."
    else:
        when = f" It is due in {span(row.due - fleet.now)}." if fleet.now < row.due < NEVER else ""
        yield f"{_state(row, reason)}.{when} {safe(taken_up(row, fleet, store))}"
        if row.ready == SUSPECT:
            yield "It died more than once without a new entry, so a worker executes it alone."


def _state(row: RunRow, reason: str) -> str:
    if row.status == "waiting":
        return "Waiting. No worker holds it"
    if row.started is None:
        return "Not started yet"
    return f"No worker executes it now ({reason})" if reason else "No worker executes it now"


def _fact(facts: Mapping[str, object], name: str, room: int | None) -> str:
    text = one_line(str(facts.get(name, "")))
    return text if room is None else short(text, room)


def _took(entry: Entry) -> str:
    return f" after {span(entry.seconds)}" if entry.seconds is not None else ""


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


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
