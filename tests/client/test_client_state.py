"""Sessions, checkpoints and schedules over HTTP are those of the store."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from client_tools import napping, reporting, run_remote

from outlast import (
    NotOwner,
    OutlastError,
    SettingsError,
    UnknownSchedule,
    VersionConflict,
    update_sessions,
)
from outlast.client import call


@dataclass
class Turn:
    who: str
    text: str


def test_session_is_read_as_it_was_written():
    async def scenario(remote, client):
        mine, theirs = client.session("u/1"), remote.app.session("u/1")
        assert await mine.info() is None
        assert await mine.get("name", "nobody") == "nobody"
        assert await mine.set("name", "Ada") == 1
        assert await mine.set("name", "Bob", if_absent=True) is False
        assert await mine.update({"age": 36}, append={"turns": [1, 2]}, topic=None) == 2
        assert await mine.append("turns", {"who": "ada", "text": "hi"}) == 3
        assert await theirs.all() == await mine.all()
        assert await mine.get("turns", type=list) == await theirs.get("turns")
        assert await mine.last("turns", 1, type=Turn) == [Turn("ada", "hi")]
        assert await mine.last("turns", None) == await theirs.last("turns", None)
        assert await mine.range("turns", 0, -1) == [1, 2]
        assert await mine.fields("a") == {"age": 36}
        assert await mine.fields(names=["name", "unknown"]) == {"name": "Ada"}
        assert await mine.fields(names=[]) == {}
        assert await mine.pop("turns", type=Turn) == [Turn("ada", "hi")]
        assert await mine.replace("turns", -1, "two") == 5
        assert await mine.delete("age") == 6
        known, found = await mine.info(), await theirs.info()
        assert (known.version, known.fields, known.lists) == (6, found.fields, found.lists)
        await mine.clear()
        assert await theirs.info() is None

    run_remote(scenario)


def test_refused_change_raises_what_the_session_raises():
    async def scenario(remote, client):
        mine, theirs = client.session("s"), remote.app.session("s")
        await mine.set("a", [1])
        for wrong in (
            lambda one: one.set("a", 2, version=7),
            lambda one: one.replace("a", 9, 1),
            lambda one: one.pop("a", 0),
        ):
            raised = []
            for one in (mine, theirs):
                with pytest.raises((OutlastError, IndexError, ValueError)) as refused:
                    await wrong(one)
                raised.append((type(refused.value), str(refused.value)))
            assert raised[0] == raised[1]

        owner = await mine.take()
        assert owner.owner == 1
        await theirs.take()
        with pytest.raises(NotOwner):
            await owner.set("a", 2)

    run_remote(scenario)


def test_several_sessions_change_together_or_not_at_all():
    async def scenario(remote, client):
        a, b = client.session("a"), client.session("b")
        assert await update_sessions(a.change(x=1), b.change(append={"y": [2]})) == [1, 1]
        with pytest.raises(VersionConflict):
            await update_sessions(a.change(x=2), b.change(y=3, version=9))
        assert await a.all() == {"x": 1}
        assert [one.id for one in await client.sessions(order="id")] == ["a", "b"]
        assert await client.sessions("b") == await remote.app.sessions("b")
        assert [one.id for one in await client.sessions(order="id", after="a")] == ["b"]

    run_remote(scenario)


def test_change_of_a_session_whose_answer_is_lost_is_made_once():
    async def scenario(remote, client):
        session = client.session("s")
        for path, change in (
            (b"update", lambda: session.update(append={"list": ["a", "b", "c"]}, version=0)),
            (b"pop", lambda: session.pop("list")),
            (b"take", session.take),
            (b"replace", lambda: session.replace("list", 0, "A")),
        ):
            remote.proxy.cut_replies(b"POST /v1/sessions/s/" + path, 2)
            await change()
        assert remote.proxy.cuts == 8
        assert await session.all() == {"list": ["A", "b"]}
        # Its version was checked once.
        assert (await session.info()).version == 4
        assert (await session.info()).owner == 1

    run_remote(scenario)


def test_checkpoint_keeps_what_a_script_saves():
    async def scenario(remote, client):
        task, theirs = client.checkpoint("import"), remote.app.checkpoint("import")
        await task.save(page=3)
        await task.mark("first", {"rows": 7})
        assert await task.get("page", 0) == 3
        assert await task.get() == await theirs.get() == {"page": 3}
        assert (await task.done("first"), await task.done("second")) == (True, False)
        assert await task.result("first") == {"rows": 7}
        assert (await theirs._session.info()).expires_at is None
        await task.clear()
        assert await theirs.get() == {}

    run_remote(scenario)


def test_schedule_is_set_listed_paused_and_deleted():
    async def scenario(remote, client):
        app = remote.app
        made = await client.schedule("nightly", reporting("tides"), cron="0 2 * * *", catch_up=3)
        assert made.by == "olga"
        await client.schedule("hourly", call("reporting", "wind"), every=3600.0, overlap="queue")
        assert await client.schedules() == await app.schedules()
        assert (await client.schedules())[1] == made
        await client.pause_schedule("nightly")
        assert (await app.schedules())[1].paused
        await client.resume_schedule("nightly")
        start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC)
        ids = await client.backfill_schedule("nightly", start, end)
        assert ids == [f"nightly@2026-01-0{day}T02:00:00Z" for day in (1, 2, 3)]
        await client.delete_schedule("nightly")
        with pytest.raises(UnknownSchedule, match="'nightly'"):
            await client.delete_schedule("nightly")
        with pytest.raises(SettingsError):
            await client.schedule("nightly", reporting("tides"), cron="never")
        with pytest.raises(ValueError, match="time zone"):
            await client.backfill_schedule("hourly", datetime(2026, 1, 1), end)

    run_remote(scenario)


def test_action_on_a_schedule_whose_answer_is_lost_is_done_once():
    async def scenario(remote, client):
        await client.schedule("hourly", napping(1000.0), every=3600.0, overlap="allow")
        remote.proxy.cut_replies(b"POST /v1/schedules/hourly/trigger", 2)
        id = await client.trigger_schedule("hourly")
        assert [one.id for one in await remote.app.runs()] == [id]
        remote.proxy.cut_replies(b"DELETE /v1/schedules/hourly", 2)
        await client.delete_schedule("hourly")
        assert (remote.proxy.cuts, await remote.app.schedules()) == (4, [])

    run_remote(scenario)


def test_viewer_reads_sessions_while_its_client_is_open():
    async def scenario(remote, client):
        async with remote.client("vera") as viewer:
            await client.session("s").set("a", 1)
            assert await viewer.session("s").all() == {"a": 1}
        with pytest.raises(OutlastError, match="not open"):
            viewer.session("s")

    run_remote(scenario)


def test_workflows_are_paused_and_resumed():
    async def scenario(remote, client):
        await client.pause_workflow(reporting)
        await client.pause_workflow("a/b")
        found = await client.paused_workflows()
        assert found == await remote.app.paused_workflows()
        assert [one.name for one in found] == ["a/b", reporting.name]
        await client.resume_workflow("a/b")
        await client.resume_workflow(reporting)
        assert await remote.app.paused_workflows() == []

    run_remote(scenario)


def test_limiters_are_listed():
    async def scenario(remote, client):
        assert await client.limiters() == []
        async with remote.app.limiter("openai", tokens="1000/1h").use(tokens=400):
            pass
        (found,) = await client.limiters()
        assert (found.name, found.waiting, found.next_at) == ("openai", 0, None)
        assert [found] == await remote.app.limiters()
        tokens = found.limits["tokens"]
        assert (tokens.limit, tokens.period, tokens.used) == (1000, 3600.0, 400)

    run_remote(scenario)
