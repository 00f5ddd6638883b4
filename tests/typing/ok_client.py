"""The same for `outlast.client`. Never executed: `test_typing.py` hands it to mypy and pyright, both strict."""

from __future__ import annotations

from typing import Any, assert_type

from outlast import BulkReport, DataEvent, RunInfo, ScheduleInfo, SessionInfo, workflow
from outlast.client import Client, NamedCall, Run, call, sync
from outlast.engine.watching.events import WatchEvent
from outlast.sync import Run as SyncRun


@workflow
async def report(topic: str) -> int:
    return len(topic)


@workflow
def tally(words: list[str]) -> dict[str, int]:
    return {word: len(word) for word in words}


assert_type(call("report", "tides"), NamedCall[Any])


async def program() -> None:
    async with Client("http://127.0.0.1:8000", token="t", patience=5.0) as client:
        assert_type(client, Client)
        run = await client.submit(report("tides"), id="r-1")
        assert_type(run, Run[int])
        assert_type(await run.result(), int)
        assert_type(await run.info(), RunInfo)
        assert_type(await client.submit(tally(["a"])), Run[dict[str, int]])
        assert_type(await client.submit(call("report", "tides")), Run[Any])
        assert_type(await client.submit_many([report("a"), report("b")]), list[Run[int]])
        assert_type(client.get(report, "r-1"), Run[int])
        assert_type(client.get("report", "r-1"), Run[Any])
        assert_type(await client.runs(), list[RunInfo])
        assert_type(await client.bulk("cancel", workflow="report"), BulkReport)
        assert_type(await client.schedules(), list[ScheduleInfo])
        assert_type(await client.sessions(), list[SessionInfo])
        assert_type(await client.session("s").get("name", type=str), str | None)
        async for event in client.watch("r-1"):
            assert_type(event, WatchEvent)
            if isinstance(event, DataEvent):
                assert_type(event.cursor, str)


def blocking_program() -> None:
    with sync.Client() as client:
        run = client.submit(report("tides"), id="r-1")
        assert_type(run, SyncRun[int])
        assert_type(run.result(), int)
        assert_type(client.submit(call("report", "tides")), SyncRun[Any])
        assert_type(client.submit_many([tally(["a"])]), list[SyncRun[dict[str, int]]])
        assert_type(client.get(report, "r-1"), SyncRun[int])
        assert_type(client.runs(limit=3), list[RunInfo])
        assert_type(client.session("s").get("name", type=str), str | None)
        for event in client.watch("r-1"):
            assert_type(event, WatchEvent)
