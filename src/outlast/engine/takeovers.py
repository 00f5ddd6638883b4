"""Find out what each death of a run cut off, and who continued the run."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.codec.documents import value_of
from outlast.codec.text import one_line
from outlast.store.rows import Entry, RunRow

ENDS_OF_EXECUTIONS = ("death", "interruption")


def takeovers(row: RunRow, entries: Sequence[Entry]) -> dict[int, str]:
    """Return who took a run over after each death and interruption, by the entry's number.

    The journal names the worker of an execution only if that worker died. The run's row names the
    current one. Other executions are known by their fence.
    """
    workers = {
        abs(entry.fence): worker
        for entry in entries
        if entry.kind == "death" and (worker := _worker(entry)) is not None
    }
    if row.worker is not None:
        workers[abs(row.fence)] = row.worker
    found: dict[int, str] = {}
    later = abs(row.fence)
    next_fence: int | None = None
    for entry in reversed(entries):
        fence = abs(entry.fence)
        if fence < later:
            next_fence = later
            later = fence
        if entry.kind in ENDS_OF_EXECUTIONS:
            found[entry.seq] = _taken_over(next_fence, workers)
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


def _taken_over(fence: int | None, workers: dict[int, str]) -> str:
    if fence is None:
        return "not resumed yet"
    if fence in workers:
        return f"resumed by worker {one_line(workers[fence])}"
    return "resumed later"


def _worker(entry: Entry) -> str | None:
    facts = value_of(entry.value)
    worker = facts.get("worker") if isinstance(facts, dict) else None
    return worker if isinstance(worker, str) else None
