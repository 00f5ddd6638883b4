"""Schedules on a virtual clock: setting, firing, pausing, and workers that die around a firing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import pytest

from outlast import (
    Backpressure,
    LimitExceeded,
    Schedule,
    SettingsError,
    UnknownSchedule,
    current,
    sleep,
    workflow,
)
from outlast.api.schedule import scheduled_time
from outlast.engine.schedule_rows import DEFINITION, SCHEDULES, STATE, State
from outlast.store.commands import UpdateSession
from outlast.testing import App
from outlast.testing.clock import START

HOUR = 3600.0
TWO_RUNS = 2.5 * HOUR


@workflow
async def summary(subject: str = "all") -> str:
    scheduled = current().scheduled
    return f"{subject} at {scheduled:%H:%M}" if scheduled else subject


@workflow
async def slow(hours: float = 1.5) -> None:
    await sleep(hours * HOUR)


@workflow(name="declared", schedule=Schedule(every=HOUR, overlap="allow"))
async def declared() -> str:
    return "done"


def worker(world, **settings) -> App:
    options = {
        "ramp": 0,
        "poll": 300.0,
        "heartbeat": 1e4,
        "lease": 1e6,
        "workflows": [summary, slow],
    }
    return App(world.open(), clock=world.clock, worker=True, **(options | settings))


async def runs_of(app, name: str) -> list[str]:
    """Return the times after the start at which a schedule has fired, in hours."""
    ids = [info.id for info in await app.runs(prefix=f"{name}@")]
    times = [scheduled_time(id) for id in reversed(ids)]
    return [round((time.timestamp() - START) / HOUR, 3) for time in times if time is not None]


def test_schedule_starts_a_run_at_each_of_its_times(memory_world):
    async def main(app):
        info = await app.schedule("report", summary("sales"), every=HOUR)
        assert info.next.timestamp() == START + HOUR
        await asyncio.sleep(TWO_RUNS)
        assert await runs_of(app, "report") == [1, 2]
        (info,) = await app.schedules()
        assert info.last.timestamp() == START + 2 * HOUR
        first = datetime.fromtimestamp(START + HOUR, UTC)
        assert await app.result(f"report@{first:%Y-%m-%dT%H:%M:%S}Z") == f"sales at {first:%H:%M}"
        return info

    info = worker(memory_world).do(main)
    assert (info.name, info.workflow, info.every, info.paused) == ("report", "summary", HOUR, False)


def test_cron_schedule_fires_in_its_time_zone(memory_world):
    async def main(app):
        info = await app.schedule("nightly", summary(), cron="0 2 * * *", tz="Asia/Tokyo")
        await asyncio.sleep(48 * HOUR)
        ids = [one.id for one in await app.runs(prefix="nightly@")]
        return info, [scheduled_time(id).hour for id in ids]

    info, hours = worker(memory_world).do(main)
    assert hours == [17, 17]
    assert info.next.hour == 17


def test_schedule_in_the_code_is_set_by_a_worker(memory_world):
    async def main(app):
        await asyncio.sleep(TWO_RUNS)
        (info,) = await app.schedules()
        return info.name, info.overlap, await runs_of(app, "declared")

    app = worker(memory_world, workflows=[declared])
    assert app.do(main) == ("declared", "allow", [1, 2])


def test_restart_with_the_same_schedule_changes_nothing(world):
    async def main(app):
        await app.schedule("report", summary(), every=HOUR)
        await asyncio.sleep(1.5 * HOUR)
        version = app.store.session("report", SCHEDULES).version
        await app.schedule("report", summary(), every=HOUR)
        assert app.store.session("report", SCHEDULES).version == version
        await asyncio.sleep(HOUR)
        return await runs_of(app, "report")

    assert worker(world).do(main) == [1, 2]


def test_new_definition_replaces_the_old_one_from_now_on(memory_world):
    async def main(app):
        await app.schedule("report", summary("old"), every=HOUR)
        await asyncio.sleep(1.5 * HOUR)
        await app.schedule("report", summary("new"), every=2 * HOUR)
        await asyncio.sleep(2.25 * HOUR)
        (info,) = await app.schedules()
        return await runs_of(app, "report"), info.arguments

    times, arguments = worker(memory_world).do(main)
    assert times == [1, 3.5]
    assert "new" in arguments


def test_run_that_overlaps_is_skipped_by_default(memory_world):
    async def main(app):
        await app.schedule("report", slow(), every=HOUR)
        await asyncio.sleep(4.25 * HOUR)
        (info,) = await app.schedules()
        return await runs_of(app, "report"), info.skipped

    assert worker(memory_world).do(main) == ([1, 3], 2)


def test_queued_run_starts_when_the_one_before_has_ended(memory_world):
    async def main(app):
        await app.schedule("report", slow(), every=HOUR, overlap="queue")
        await asyncio.sleep(4.25 * HOUR)
        rows = [await one_row(app, info.id) for info in await app.runs(prefix="report@")]
        return sorted(round((row.created - START) / HOUR, 2) for row in rows)

    async def one_row(app, id):
        return app.store.run(id)

    assert worker(memory_world).do(main) == [1, 2.5, 4]


def test_run_before_is_cancelled_for_the_next_one(memory_world):
    async def main(app):
        await app.schedule("report", slow(5), every=HOUR, overlap="cancel")
        await asyncio.sleep(3.5 * HOUR)
        infos = await app.runs(prefix="report@")
        return [info.status for info in infos], infos[-1].reason

    statuses, reason = worker(memory_world).do(main)
    assert statuses == ["waiting", "cancelled", "cancelled"]
    assert reason == "schedule 'report' starts its next run"


def test_overlapping_runs_are_allowed_if_asked_for(memory_world):
    async def main(app):
        await app.schedule("report", slow(5), every=HOUR, overlap="allow")
        await asyncio.sleep(3.5 * HOUR)
        return [info.status for info in await app.runs(prefix="report@")]

    assert worker(memory_world).do(main) == ["waiting"] * 3


@pytest.mark.parametrize(("catch_up", "times"), [("none", []), ("last", [10]), (3, [8, 9, 10])])
def test_missed_firings_are_caught_up_as_asked(world, catch_up, times):
    async def first(app):
        await app.schedule("report", summary(), every=HOUR, overlap="allow", catch_up=catch_up)

    async def second(app):
        await asyncio.sleep(60.0)
        return await runs_of(app, "report")

    world.do(first)
    world.restart(10.5 * HOUR)
    assert worker(world).do(second) == times


def test_paused_schedule_starts_nothing_until_it_is_resumed(memory_world):
    async def main(app):
        await app.schedule("report", summary(), every=HOUR)
        await app.pause_schedule("report")
        await asyncio.sleep(TWO_RUNS)
        assert (await app.schedules())[0].paused
        assert await runs_of(app, "report") == []
        await app.resume_schedule("report")
        await asyncio.sleep(HOUR)
        return await runs_of(app, "report")

    assert worker(memory_world).do(main) == [3]


def test_deploy_does_not_resume_a_paused_schedule(memory_world):
    async def main(app):
        await app.schedule("report", summary(), every=HOUR)
        await app.pause_schedule("report")
        await app.schedule("report", summary("other"), every=HOUR)
        return (await app.schedules())[0].paused

    assert worker(memory_world).do(main)


def test_triggered_run_starts_at_once_and_changes_no_time(memory_world):
    async def main(app):
        await app.schedule("report", summary("now"), every=HOUR)
        await asyncio.sleep(600.5)
        id = await app.trigger_schedule("report")
        assert (await app.result(id)).startswith("now at ")
        assert scheduled_time(id).timestamp() == START + 600.5
        await asyncio.sleep(HOUR)
        return await runs_of(app, "report")

    assert worker(memory_world).do(main)[1:] == [1]


def test_backfill_submits_the_times_of_a_range_once(memory_world):
    start = datetime.fromtimestamp(START, UTC)

    async def main(app):
        await app.schedule("report", summary(), every=HOUR)
        await asyncio.sleep(1.5 * HOUR)
        ids = await app.backfill_schedule("report", start - 3 * timedelta(hours=1), start)
        again = await app.backfill_schedule(
            "report", start - 3 * timedelta(hours=1), start + timedelta(hours=2)
        )
        assert again[:3] == ids
        return sorted(await runs_of(app, "report"))

    assert worker(memory_world).do(main) == [-3, -2, -1, 0, 1]


def test_deleted_schedule_fires_no_more(memory_world):
    async def main(app):
        await app.schedule("report", summary(), every=HOUR)
        await asyncio.sleep(1.5 * HOUR)
        await app.delete_schedule("report")
        await asyncio.sleep(3 * HOUR)
        assert await app.schedules() == []
        return await runs_of(app, "report")

    assert worker(memory_world).do(main) == [1]


def test_jitter_delays_each_run_by_the_same_time_for_every_worker(memory_world):
    async def main(app):
        await app.schedule("report", summary(), every=HOUR, jitter=600.0)
        await asyncio.sleep(3.5 * HOUR)
        rows = [app.store.run(info.id) for info in await app.runs(prefix="report@")]
        return [row.due - scheduled_time(row.id).timestamp() for row in rows]

    delays = worker(memory_world).do(main)
    assert len(set(delays)) == 3
    assert all(0 <= delay < 600 for delay in delays)


def test_full_queue_delays_a_firing_and_loses_none(memory_world):
    async def main(app):
        await app.queue("small").limit(depth=1)
        await app.queue("small").put("in the way")
        await app.schedule("report", summary(), every=HOUR, queue="small")
        await asyncio.sleep(1.5 * HOUR)
        assert await runs_of(app, "report") == []
        with pytest.raises(Backpressure):
            await app.trigger_schedule("report")
        item = await app.queue("small").claim()
        await item.ack()
        await asyncio.sleep(60.0)
        return await runs_of(app, "report")

    assert worker(memory_world).do(main) == [1]


def test_damaged_schedule_does_not_stop_the_others(memory_world, caplog):
    async def main(app):
        await app.schedule("a", summary(), every=HOUR)
        await app.schedule("b", summary(), every=HOUR)
        app.store.commit([UpdateSession("b", "token", {STATE: "{}"}, space=SCHEDULES)])
        await asyncio.sleep(1.5 * HOUR)
        return await runs_of(app, "a") + await runs_of(app, "b"), len(await app.schedules())

    fired, listed = worker(memory_world).do(main)
    assert (fired, listed) == ([1], 1)
    assert "is damaged in the store" in caplog.text


@pytest.mark.parametrize("definition", ["damaged", "another zone"])
def test_unusable_schedule_stops_no_other_and_can_be_deleted(memory_world, caplog, definition):
    """The worker's own code has a schedule of that name, and sets it once it is deleted."""

    async def main(app):
        await app.schedule("a", summary(), every=HOUR)
        await asyncio.sleep(1.5 * HOUR)
        fired, listed = await runs_of(app, "a"), [info.name for info in await app.schedules()]
        await app.delete_schedule("declared")
        await asyncio.sleep(HOUR)
        return fired, listed, [info.name for info in await app.schedules()]

    app = worker(memory_world, workflows=[summary, declared])
    fields = {DEFINITION: "{}", STATE: "{}"}
    if definition == "another zone":
        defined = Schedule(cron="0 * * * *").define(summary(), app.settings)
        nowhere = asdict(replace(defined, tz="Europe/Nowhere"))
        fields = {DEFINITION: json.dumps(nowhere), STATE: json.dumps(asdict(State(0.0, 0.0)))}
    app.store.commit([UpdateSession("declared", "t", fields, space=SCHEDULES)])
    assert app.do(main) == ([1], ["a"], ["a", "declared"])
    assert "schedule 'declared'" in caplog.text


async def _unknown(app):
    for action in (
        app.pause_schedule,
        app.resume_schedule,
        app.trigger_schedule,
        app.delete_schedule,
    ):
        with pytest.raises(UnknownSchedule, match="no schedule has the name 'other'"):
            await action("other")


def test_unknown_schedule_is_named(memory_world):
    worker(memory_world).do(_unknown)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cron": "0 2 * *"}, "not a cron expression"),
        ({}, "either cron= or every="),
        ({"every": 5, "overlap": "maybe"}, "must be one of"),
        ({"every": 5, "catch_up": 0}, "must be"),
        ({"every": 5, "catch_up": True}, "must be"),
        ({"every": 5, "jitter": -1}, "jitter"),
        ({"every": 5, "priority": 10**9}, "priority"),
    ],
)
def test_wrong_option_is_refused_before_anything_is_written(memory_world, options, message):
    async def main(app):
        with pytest.raises(SettingsError, match=message):
            await app.schedule("report", summary(), **options)
        return await app.schedules()

    assert worker(memory_world).do(main) == []


def test_workflow_that_is_not_called_is_refused(memory_world):
    async def main(app):
        with pytest.raises(TypeError, match="takes a call of a workflow"):
            await app.schedule("report", summary, every=HOUR)

    worker(memory_world).do(main)


def test_too_long_name_is_refused(memory_world):
    async def main(app):
        with pytest.raises(LimitExceeded):
            await app.schedule("r" * 10_000, summary(), every=HOUR)

    worker(memory_world).do(main)


def test_scheduled_workflow_must_be_callable_without_arguments():
    with pytest.raises(SettingsError, match="cannot be called without arguments"):

        @workflow(schedule="0 2 * * *")
        async def needs(subject: str) -> str:
            return subject


def test_other_runs_have_no_scheduled_time(memory_world):
    assert memory_world.run(summary("plain"), id="plain@home") == "plain"
    assert scheduled_time("report@2026-11-18T02:00:00Z") == datetime(2026, 11, 18, 2, tzinfo=UTC)
