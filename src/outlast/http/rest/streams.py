"""Follow runs and their streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.responses import Response

from outlast.http.rest.answers import StreamsAnswer
from outlast.http.rest.calls import ApiCall
from outlast.http.rest.event_stream import EventStream
from outlast.http.rest.masking import MASKED, mask
from outlast.http.rest.requests import Nothing, Segment, WatchFrom
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.store.protocol import Store

routes = Routes("streams")

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=200)]
From = Annotated[WatchFrom, Query()]


@routes.add("GET", "/v1/runs/{id}/streams", Access.READ_RUNS, StreamsAnswer, problems=(404,))
async def list_streams(
    id: Segment,
    call: Call,
    query: Annotated[Nothing, Query()],
) -> Response:
    """List the streams of a run, each with the number of its values."""

    def document(store: Store) -> Any:
        row = call.check_own(store.run(id), id)
        return {
            "streams": [
                {"name": one.name, "values": one.stop - one.start} for one in store.streams(row.pk)
            ]
        }

    return await call.answer(document)


@routes.add(
    "GET",
    "/v1/runs/{id}/watch",
    Access.READ_RUNS,
    media_type=EventStream.media_type,
    problems=(404,),
    nothing=True,
)
async def watch_run(
    id: Segment, call: Call, query: From, last_event_id: LastEventId = None
) -> Response:
    """Follow a run: its status, its journal and who executes it, as server-sent events.

    204 means that the viewer has seen the end.
    """
    return await _following(call, id, None, last_event_id or query.after)


@routes.add(
    "GET",
    "/v1/runs/{id}/streams/{name}",
    Access.READ_RUNS,
    media_type=EventStream.media_type,
    problems=(404,),
    nothing=True,
)
async def watch_stream(
    id: Segment, name: Segment, call: Call, query: From, last_event_id: LastEventId = None
) -> Response:
    """Follow what a run publishes to a stream, as server-sent events.

    204 means that the viewer has seen the end.
    """
    return await _following(call, id, name, last_event_id or query.after)


async def _following(call: ApiCall, id: str, stream: str | None, after: str | None) -> Response:
    await call.row(id)
    watch = call.api.app.watch(id, stream, after=after)
    release = call.begin_waiting()
    try:
        await watch.__aenter__()
        if watch.is_final:
            await watch.aclose()
            release()
            return Response(status_code=204)
    except BaseException:
        release()
        await watch.aclose()
        raise
    return EventStream(
        watch,
        _document_of(call, stream),
        call.engine.shutdown,
        send_seconds=call.engine.settings.api_send_timeout,
        release=release,
    )


def _document_of(call: ApiCall, stream: str | None) -> Callable[[Any], Any]:
    """Return what makes the document of an event, without values if the caller sees none."""

    def whole(event: Any) -> Any:
        return event.document()

    def masked(event: Any) -> Any:
        document = event.document()
        if event.kind != "data":
            return mask(document)
        value = MASKED if stream is not None else mask(document["value"])
        return {**document, "value": value}

    return masked if call.is_masked else whole
