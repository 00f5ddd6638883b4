"""Determine what each death of a run cut off, and which worker continued the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outlast.codec.documents import value_of
from outlast.codec.text import one_line
from outlast.store.rows import ENDED, Entry, ExecutionRow, Status

ENDS_OF_EXECUTIONS = ("death", "interruption")


class EndOfExecution(NamedTuple):
    """Name the worker that lost a run by a death or an interruption, and its successor."""

    worker: str | None
    """The worker that died or released the run, if it is known."""
    next_worker: str | None
    """The worker that claimed the run next, or None if none has."""

    def text(self, status: Status) -> str:
        """Return which worker took over. `status` is that of the run now."""
        if self.next_worker is None:
            if status == "dead":
                return "the run became a dead letter"
            return "not resumed" if status in ENDED else "not resumed yet"
        if self.next_worker == self.worker:
            return "the same worker resumed it"
        return f"worker {one_line(self.next_worker)} took over"


def ends_of_executions(
    entries: Sequence[Entry], executions: Sequence[ExecutionRow]
) -> dict[int, EndOfExecution]:
    """Return what each death and interruption ended and what followed, by the entry's number.

    Such an entry carries the negative fence of the execution that it ended.
    """
    workers = {execution.fence: execution.worker for execution in executions}
    fences = sorted(workers)
    found = {}
    for entry in entries:
        if entry.kind in ENDS_OF_EXECUTIONS:
            fence = abs(entry.fence)
            following = next((workers[later] for later in fences if later > fence), None)
            found[entry.seq] = EndOfExecution(_worker(entry) or workers.get(fence), following)
    return found


def cut_off(entries: Sequence[Entry]) -> dict[int, str]:
    """Return the worker that died during each attempt of an effect, by the number of its intent.

    The start of a step is not recorded, so the journal does not tell which steps were in flight.
    """
    in_flight: dict[str, Entry] = {}
    found: dict[int, str] = {}
    for entry in entries:
        if entry.kind == "intent":
            in_flight[entry.key] = entry
        elif entry.kind == "death":
            worker = _worker(entry) or ""
            found |= {intent.seq: worker for intent in in_flight.values()}
            in_flight.clear()
        elif entry.kind == "interruption":
            in_flight.clear()
        else:
            in_flight.pop(entry.key, None)
    return found


def waits_for_decisions(entries: Sequence[Entry]) -> dict[int, float]:
    """Return for how many seconds the effect of each decision was open, by the entry's number.

    The time counts from the last entry of its act: the intent, a failed attempt or `verify`.
    """
    since: dict[str, float] = {}
    found: dict[int, float] = {}
    for entry in entries:
        if entry.kind in ("intent", "attempt", "verify"):
            since[entry.key] = entry.at
        elif entry.kind == "decision" and entry.key in since:
            found[entry.seq] = max(0.0, entry.at - since[entry.key])
    return found


def _worker(entry: Entry) -> str | None:
    facts = value_of(entry.value)
    worker = facts.get("worker") if isinstance(facts, dict) else None
    return worker if isinstance(worker, str) else None
