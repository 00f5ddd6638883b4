"""Answer what needs a person, and how the work of the last hour went."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from outlast.codec.text import iso
from outlast.engine.decisions import effect_log_of, undecided
from outlast.engine.documents import run_document
from outlast.engine.journal_view import questions_of_parked
from outlast.errors import StoreBroken
from outlast.http.rest.answers import AttentionAnswer
from outlast.http.rest.requests import AttentionFilter
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.store.protocol import Store
from outlast.store.rows import RunQuery, RunRow
from outlast.store.tolerant_rows import each_document

routes = Routes("runs")

HOUR_SECONDS = 3_600.0
ENDS_MAX = 2_000
"""How many runs of the last hour are counted. They are the latest."""
JOURNAL_MAX = 1_000
"""The longest journal that is read to see whether an effect is undecided."""
LISTS = {
    "parked": RunQuery(statuses=("parked",), undoing=False),
    "stuck": RunQuery(statuses=("parked",), undoing=True),
    "dead": RunQuery(statuses=("dead",)),
    "answers": RunQuery(statuses=("waiting", "running"), awaits_message=True),
}
"""What needs a person. Each list is found by an index, however many runs there are."""


@routes.add("GET", "/v1/attention", Access.READ, AttentionAnswer)
async def read_attention(call: Call, query: Annotated[AttentionFilter, Query()]) -> Response:
    """List what needs a person, and count how the runs of the last hour ended."""

    def document(store: Store) -> Any:
        now = store.now()
        lists = {name: _list(store, one, query.limit, now) for name, one in LISTS.items()}
        return call.masked({"now": iso(now), **lists, "last_hour": _last_hour(store, now)})

    return await call.answer(document)


def _list(store: Store, query: RunQuery, limit: int, now: float) -> dict[str, Any]:
    """Return the latest runs of a list, and whether there are more."""
    rows = store.runs(query._replace(limit=limit + 1))

    def document(row: RunRow) -> dict[str, Any]:
        return {
            **run_document(row, now),
            "since": iso(_since(store, row)),
            "undecided": _undecided(store, row) if row.status == "parked" else 0,
        }

    return {"runs": each_document(rows[:limit], document, "id"), "more": len(rows) > limit}


def _since(store: Store, row: RunRow) -> float:
    """Return since when a run is what it is: when it ended or was last released."""
    if row.ended is not None:
        return row.ended
    executions = store.executions(row.pk)
    if not executions:
        return row.created
    last = executions[-1]
    return last.began if last.ended is None else last.ended


def _undecided(store: Store, row: RunRow) -> int | None:
    """Return how many decisions a parked run waits for. None: its journal is long."""
    questions = len(questions_of_parked(store, row))
    if not store.may_need_compensation(row.id):
        return questions
    if store.last_seq(row.pk) > JOURNAL_MAX:
        return None
    try:
        log, _ = effect_log_of(store, row)
    except StoreBroken:
        # The page of the run says what is wrong.
        return None
    return questions + len(undecided(log))


def _last_hour(store: Store, now: float) -> dict[str, Any]:
    """Count how the latest runs ended. `since` is where the count begins."""
    counts = store.ends(now - HOUR_SECONDS, ENDS_MAX)
    ended = sum(one.runs for one in counts)
    is_cut = ended >= ENDS_MAX
    since = min((one.first for one in counts), default=now) if is_cut else now - HOUR_SECONDS
    return {
        "ended": {one.status: one.runs for one in counts},
        "deaths": sum(one.deaths for one in counts),
        "interruptions": sum(one.interruptions for one in counts),
        "per_minute": round(60.0 * ended / max(1.0, now - since), 3),
        "since": iso(since),
        "is_cut": is_cut,
    }
