"""Show runs: their journals, timelines and effects."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from outlast.engine.decisions import effect_log_of, undecided
from outlast.engine.documents import (
    effect_document,
    entry_document,
    history_document,
    waits_of,
    whole_run_document,
)
from outlast.engine.executing_steps import executing_steps
from outlast.engine.inspection import EffectInfo
from outlast.engine.journal_view import History, questions_of_parked
from outlast.engine.message_types import message_schemas
from outlast.engine.timeline import size_of, timeline_document
from outlast.http.rest.answers import (
    EffectsAnswer,
    JournalAnswer,
    TimelineAnswer,
    WaitsAnswer,
    WholeRunAnswer,
)
from outlast.http.rest.history_cache import chunks
from outlast.http.rest.requests import JournalPage, Nothing, RunView, Segment
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.store.fleet import Fleet
from outlast.store.protocol import Store
from outlast.store.rows import Entry, RunQuery, RunRow
from outlast.store.tolerant_rows import legible

routes = Routes("runs")

JOURNAL_MAX = 10_000
"""The longest journal that is returned in the document of a run."""
TIMELINE_MAX = 100_000
"""The longest journal for which a timeline is built. It is read for each page."""
PAGE_SIZE_MAX = 4_000_000
"""After how many characters of recorded values a page ends early."""
CHILDREN_MAX = 1_000


@routes.add("GET", "/v1/runs/{id}", Access.READ_RUNS, WholeRunAnswer, problems=(404, 413))
async def show_run(id: Segment, call: Call, query: Annotated[RunView, Query()]) -> Response:
    """Show a run with its journal, effects, messages and cost, or only the run itself."""

    def document(store: Store) -> Any:
        row = call.check_own(store.run(id), id)
        with legible(f"run {id!r}"):
            if query.brief:
                return call.masked({"run": whole_run_document(row, store.now())})
            history = call.api.histories.history(store, row, JOURNAL_MAX)
            return call.masked(history_document(history, store.now()))

    return await call.answer(document)


@routes.add("GET", "/v1/runs/{id}/timeline", Access.READ_RUNS, TimelineAnswer, problems=(404, 413))
async def read_timeline(
    id: Segment, call: Call, query: Annotated[JournalPage, Query()]
) -> Response:
    """Return what `outlast show` prints: the run, and a page of its timeline."""

    def document(store: Store) -> Any:
        row = call.check_own(store.run(id), id)
        with legible(f"run {id!r}"):
            found = timeline_document(
                call.api.histories.history(store, row, TIMELINE_MAX),
                Fleet.of(store),
                store.runs(RunQuery(parent=row.id, items=None, limit=CHILDREN_MAX))[::-1],
                executing_steps(store, row),
                after=query.after,
                limit=query.limit,
                size_max=PAGE_SIZE_MAX,
                id_length_max=call.engine.settings.id_length_max,
                progress=store.progress(row.pk) if row.ended is None else {},
            )
        if call.is_own_only and found["holder"] is not None:
            # What else the worker holds and takes is not the submitter's.
            others: dict[str, Any] = {
                "queues": [],
                "workflows": [],
                "held": None,
                "concurrency": None,
            }
            found["holder"] |= others
        return call.masked(found)

    return await call.answer(document)


@routes.add("GET", "/v1/runs/{id}/journal", Access.READ_RUNS, JournalAnswer, problems=(404,))
async def read_journal(id: Segment, call: Call, query: Annotated[JournalPage, Query()]) -> Response:
    """Return a page of the journal, oldest entry first."""

    def page(store: Store) -> Any:
        row = call.check_own(store.run(id), id)
        with legible(f"the journal of run {id!r}"):
            entries = _page(store, row, query.after, query.limit)
            void = _void(store, row)
            more = bool(entries) and entries[-1].seq < store.last_seq(row.pk)
            document = {
                "entries": [entry_document(one, one.seq in void) for one in entries],
                "next": entries[-1].seq if more else None,
            }
            return call.masked(document)

    return await call.answer(page)


def _page(store: Store, row: RunRow, after: int, limit: int) -> list[Entry]:
    """Return at most `limit` entries, and fewer once they are large."""
    found: list[Entry] = []
    size = 0
    for chunk in chunks(store, row.pk, after):
        for entry in chunk[: limit - len(found)]:
            size += size_of(entry)
            if found and size > PAGE_SIZE_MAX:
                return found
            found.append(entry)
        if len(found) >= limit:
            break
    return found


def _void(store: Store, row: RunRow) -> set[int]:
    """Return which entries a retry made void. The whole journal is read only if there was one."""
    if not any(entry.kind == "retry" for entry in store.history(row.pk)):
        return set()
    return History.of(store, row).void


@routes.add("GET", "/v1/runs/{id}/waits", Access.READ_RUNS, WaitsAnswer, problems=(404,))
async def read_waits(
    id: Segment,
    call: Call,
    query: Annotated[Nothing, Query()],
) -> Response:
    """Return the messages that a run waits for, each with the JSON schema of its type, if known."""

    def document(store: Store) -> Any:
        row = call.check_own(store.run(id), id)
        names = waits_of(row)
        schemas = message_schemas(store, row.workflow, names)
        waits = [{"name": name, "schema": schemas.get(name)} for name in names]
        return {"run": row.id, "waits": waits}

    return await call.answer(document)


@routes.add("GET", "/v1/runs/{id}/effects", Access.READ_RUNS, EffectsAnswer, problems=(404,))
async def read_effects(
    id: Segment,
    call: Call,
    query: Annotated[Nothing, Query()],
) -> Response:
    """Return the effects of a run, and the places of those that a person can decide."""

    def document(store: Store) -> Any:
        row = call.check_own(store.run(id), id)
        log, _ = effect_log_of(store, row)
        waiting = undecided(log) if row.status == "parked" else []
        effects = [effect_document(one) for one in EffectInfo.of(log)]
        return call.masked(
            {
                "effects": effects,
                "undecided": [one.place for one in waiting],
                "questions": questions_of_parked(store, row),
            }
        )

    return await call.answer(document)
