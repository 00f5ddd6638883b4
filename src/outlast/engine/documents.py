"""Build the JSON documents of `--json` and of the HTTP API.

Keys are stable: new ones may appear, none is renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from outlast.codec.cost import Cost
from outlast.codec.documents import error_document, value_of
from outlast.codec.text import iso
from outlast.engine.budgets import BudgetInfo, BudgetPage
from outlast.engine.inspection import EffectInfo, explained
from outlast.engine.journal_view import History
from outlast.engine.limiters import LimiterInfo, read_limiters
from outlast.engine.schedule_rows import ScheduleRow
from outlast.store.commands import ITEM
from outlast.store.fleet import Fleet, FleetQueues, names_of
from outlast.store.pauses import PausedWorkflow
from outlast.store.protocol import Store
from outlast.store.rows import NEVER, Entry, ExecutionRow, Message, QueueRow, RunRow, WorkerRow
from outlast.store.session_rows import SessionRow
from outlast.store.tolerant_rows import each_document


def run_document(row: RunRow, now: float = 0.0) -> dict[str, Any]:
    """Return a run in short, as `outlast runs` lists it.

    Without `now`, every run queued for a later time counts as delayed.
    """
    return {
        "id": row.id,
        "workflow": row.workflow,
        "item": row.workflow == ITEM,
        "status": row.status,
        "delayed": row.is_delayed(now),
        "queue": row.queue,
        "priority": row.priority,
        "created": iso(row.created),
        "started": iso(row.started),
        "ended": iso(row.ended),
        "due": iso(row.due) if row.status in ("queued", "waiting") and row.due < NEVER else None,
        "worker": row.worker,
        "fence": abs(row.fence),
        "deaths": row.deaths,
        "interruptions": row.interruptions,
        "failures": row.failures,
        "parent": row.parent,
        "by": row.by,
        "key": row.key,
        "waiting_for": waits_of(row),
        "cancelling": row.cancel if row.ended is None else None,
        "reason": row.reason,
        "error": error_document(row.error),
        "explain": explained(row),
        "undoing": undoing_document(row),
    }


def whole_run_document(row: RunRow, now: float) -> dict[str, Any]:
    """Return a run with its arguments and result, as `outlast show` shows it."""
    return {
        **run_document(row, now),
        "args": value_of(row.args),
        "result": value_of(row.value),
        "deadline": iso(row.deadline),
        "failed_at": row.failed_at,
        "deaths_in_a_row": row.deaths_in_a_row,
        "attempts_max": row.attempts_max,
        "suspect": row.is_suspect,
    }


def undoing_document(row: RunRow) -> dict[str, Any] | None:
    """Return how a run that is being compensated will end, or None."""
    if row.undoing is None:
        return None
    verdict = value_of(row.undoing)
    fields = verdict if isinstance(verdict, dict) else {}
    error = fields.get("error")
    return {
        "status": fields.get("status"),
        "reason": fields.get("reason"),
        "error": error_document(error if isinstance(error, str) else None),
    }


def effect_document(effect: EffectInfo) -> dict[str, Any]:
    """Return an effect as `app.effects` has it."""
    return {
        "place": effect.place,
        "effect": effect.effect,
        "state": effect.state,
        "key": effect.key,
        "arguments": value_of(effect.arguments),
        "result": value_of(effect.result),
        "error": effect.error,
        "since": None if effect.since is None else iso(effect.since.timestamp()),
        "known": None if effect.known is None else iso(effect.known.timestamp()),
        "intent": effect.intent,
        "acts": effect.acts,
        "compensation": effect.compensation,
        "units": list(effect.units),
        "undo_error": effect.undo_error,
        "undo": None if effect.undo is None else effect_document(effect.undo),
    }


def history_document(history: History, now: float) -> dict[str, Any]:
    """Return a run with its journal, effects, messages and cost, as `outlast show` shows it."""
    journal = [entry_document(entry, entry.seq in history.void) for entry in history.entries]
    return {**folded_document(history, now), "journal": journal}


def folded_document(history: History, now: float) -> dict[str, Any]:
    """Return the same without the journal."""
    effects = None if history.effect_log is None else EffectInfo.of(history.effect_log)
    items = (
        {} if history.done is None else {"items": {"done": history.done, "total": history.total}}
    )
    return {
        "run": whole_run_document(history.row, now),
        **items,
        "cost": {
            "spent": history.account.spent.document(),
            "saved": history.account.saved.document(),
        },
        "effects": None if effects is None else [effect_document(effect) for effect in effects],
        "undecided": [one.place for one in history.undecided],
        "questions": history.questions,
        "executions": [_execution_document(execution) for execution in history.executions],
        "messages": [message_document(message, history.received) for message in history.messages],
    }


def _execution_document(execution: ExecutionRow) -> dict[str, Any]:
    """Return one execution: which worker held the run, under which fence, and how it ended."""
    return {
        "fence": execution.fence,
        "worker": execution.worker,
        "host": execution.host,
        "pid": execution.pid,
        "began": iso(execution.began),
        "ended": iso(execution.ended),
        "status": execution.status,
        "reason": execution.reason,
    }


def outcome_document(row: RunRow) -> dict[str, Any]:
    """Return how a run ended, for `outlast run`."""
    return {
        "id": row.id,
        "workflow": row.workflow,
        "status": row.status,
        "result": value_of(row.value),
        "error": error_document(row.error),
        "reason": row.reason,
        "explain": explained(row),
    }


def worker_document(row: WorkerRow, state: str, now: float) -> dict[str, Any]:
    return {
        "id": row.id,
        "state": state,
        "host": row.host,
        "pid": row.pid,
        "started": iso(row.started),
        "renewed": iso(row.renewed),
        "lease_until": iso(row.lease_until),
        "lease_left": round(row.lease_until - now, 3),
        "draining": bool(row.draining),
        "queues": names_of(row.queues),
        "workflows": names_of(row.workflows),
        "held": row.held,
        "concurrency": row.concurrency,
    }


def workers_document(fleet: Fleet) -> dict[str, Any]:
    """Return the workers of a store, and what blocked their event loops."""
    here = {worker.id for worker in fleet.workers}
    return {
        "workers": each_document(
            fleet.workers, lambda row: worker_document(row, fleet.state(row), fleet.now), "id"
        ),
        "deregistered": list(fleet.deregistered),
        "stalls": [
            {**stall._asdict(), "at": iso(stall.at), "ended": stall.worker not in here}
            for stall in fleet.stalls
        ],
    }


def queue_document(row: QueueRow, unknown: Sequence[str], now: float) -> dict[str, Any]:
    return {
        "name": row.name,
        "queued": row.queued,
        "ready": row.ready,
        "delayed": row.delayed,
        "running": row.running,
        "waiting": row.waiting,
        "parked": row.parked,
        "dead": row.dead,
        "oldest": iso(row.oldest),
        "oldest_seconds": _age(row.oldest, now),
        "submitted_last_minute": row.submitted,
        "ended_last_minute": row.ended,
        "depth_max": row.depth_max,
        "concurrency_max": row.concurrency_max,
        "per_key_concurrency": row.key_concurrency_max,
        "per_key_rate": row.key_rate,
        "paused": row.paused,
        "returned": row.returned,
        "returned_since": iso(row.returned_since),
        "returned_seconds": _age(row.returned_since, now),
        "undoing": row.undoing,
        "stuck": row.stuck,
        "unknown_workflows": list(unknown),
    }


def limits_document(row: QueueRow | None) -> dict[str, Any]:
    """Return the limits of a queue. All are None for a queue that the store does not know."""
    return {
        "depth": row and row.depth_max,
        "concurrency": row and row.concurrency_max,
        "per_key_concurrency": row and row.key_concurrency_max,
        "per_key_rate": row and row.key_rate,
        "paused": row is not None and row.paused,
    }


def queues_document(found: FleetQueues) -> dict[str, Any]:
    """Return the queues of a store."""

    def one(row: QueueRow) -> dict[str, Any]:
        return queue_document(row, found.unknown.get(row.name, ()), found.now)

    return {"queues": each_document(found.rows, one, "name")}


def session_document(row: SessionRow) -> dict[str, Any]:
    """Return a session with the names of its fields and lists, without their contents."""
    return {
        "id": row.id,
        "version": row.version,
        "updated": iso(row.updated),
        "expires": iso(row.expires),
        "fields": list(row.fields),
        "lists": dict(row.lists),
        "owner": row.owner,
    }


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else round(max(0.0, now - since), 3)


def entry_document(entry: Entry, void: bool) -> dict[str, Any]:
    value = value_of(entry.value)
    # The value is when the next attempt may start.
    if entry.kind == "attempt":
        value = iso(value) if isinstance(value, (int, float)) else value
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "key": entry.key,
        "at": iso(entry.at),
        "args": value_of(entry.args),
        "value": value,
        "error": error_document(entry.error),
        "seconds": entry.seconds,
        "attempt": entry.attempt,
        "asked": entry.asked,
        "cost": Cost.read(entry.cost).document() or None,
        "fence": entry.fence,
        "void": void,
    }


def message_document(message: Message, received: Iterable[int]) -> dict[str, Any]:
    return {
        "number": message.number,
        "name": message.name,
        "id": message.id,
        "value": value_of(message.value),
        "at": iso(message.at),
        "by": message.by,
        "received": message.number in received,
    }


def waits_of(row: RunRow) -> list[str]:
    """Return the names of the messages that a run waits for."""
    return [name for name in row.waits.split("\n") if name] if row.ended is None else []


def pause_document(pause: PausedWorkflow) -> dict[str, Any]:
    return {"name": pause.name, "since": iso(pause.since.timestamp()), "by": pause.by}


def limiters_document(store: Store) -> dict[str, Any]:
    """Return the limiters as `outlast limiters` lists them, and the names of damaged ones."""
    found, damaged = read_limiters(store)
    return {"limiters": [limiter_document(one) for one in found], "damaged": damaged}


def limiter_document(info: LimiterInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "limits": {unit: limit._asdict() for unit, limit in info.limits.items()},
        "waiting": info.waiting,
        "next": iso(info.next_at),
    }


def budget_document(info: BudgetInfo) -> dict[str, Any]:
    """Return a budget as `outlast budgets` lists it."""
    return info._asdict()


def budgets_document(page: BudgetPage) -> dict[str, Any]:
    """Return a page of budgets, and the ids of damaged ones."""
    return {
        "budgets": [budget_document(one) for one in page.budgets],
        "damaged": page.damaged,
        "next": page.next,
    }


def schedule_document(row: ScheduleRow) -> dict[str, Any]:
    """Return a schedule as `outlast schedules` lists it."""
    definition, state = row.definition, row.state
    return {
        "name": row.name,
        "workflow": definition.workflow,
        "args": value_of(definition.args),
        "cron": definition.cron,
        "every": definition.every,
        "tz": definition.tz,
        "overlap": definition.overlap.value,
        "catch_up": definition.catch_up,
        "jitter": definition.jitter,
        "queue": definition.queue,
        "priority": definition.priority,
        "key": definition.key,
        "paused": state.paused,
        "next": iso(row.next()),
        "last": None if state.last is None else iso(state.last.at),
        "last_run": None if state.last is None else state.last.id,
        "waiting": len(state.waiting),
        "skipped": state.skipped,
        "by": state.by,
    }
