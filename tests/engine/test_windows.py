"""Debounced submissions, and windows that reject, join or replace repeats."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from outlast import AlreadySubmitted, Conflict, LimitExceeded, RunCancelled, SettingsError, workflow
from outlast.engine.submission_windows import run_id
from outlast.testing import App
from outlast.testing.clock import START

HOUR = 3600.0


@workflow
async def index(document: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return document


@workflow
async def other(document: str) -> str:
    return document


def worker(world, **settings) -> App:
    options = {"ramp": 0, "poll": 300.0, "heartbeat": 1e4, "lease": 1e6} | settings
    workflows = [index, other]
    return App(world.open(), clock=world.clock, worker=True, workflows=workflows, **options)


async def ran(app) -> list[tuple[str, float]]:
    """Return the argument of each run that is done, and when it began, oldest first."""
    rows = [app.store.run(info.id) for info in reversed(await app.runs(status="done"))]
    return [(row.args.split('"')[3], round(row.started - START, 1)) for row in rows]


def test_the_last_call_of_a_burst_runs(world):
    async def main(app):
        begin = await now(app)
        runs = []
        for number in range(4):
            runs.append(await app.submit(index(f"v{number}"), key="ann", debounce=30))
            await asyncio.sleep(10)
        assert len({run.id for run in runs}) == 1
        assert runs[0].id == run_id("index:ann", int(begin * 1000))
        await asyncio.sleep(60)
        assert await runs[0].result() == "v3"
        return await ran(app)

    [(document, at)] = worker(world).do(main)
    assert (document, at) == ("v3", pytest.approx(60, abs=1))


async def now(app) -> float:
    return app._open.store.now()


def test_debounce_max_bounds_how_long_a_burst_waits(world):
    async def main(app):
        for number in range(20):
            await app.submit(index(f"v{number}"), id="doc", debounce=30, debounce_max=60)
            await asyncio.sleep(10)
        await asyncio.sleep(60)
        return await ran(app)

    found = worker(world).do(main)
    # v0 to v5 came before 60 s. A burst begins with the first call after its run has begun.
    documents, starts = zip(*found, strict=True)
    assert (len(documents), documents[-1]) == (3, "v19")
    assert starts[0] == pytest.approx(60, abs=1)
    assert all(60 <= later - earlier <= 71 for earlier, later in pairwise(starts))


def test_a_call_while_the_run_executes_begins_another_burst(world):
    async def main(app):
        first = await app.submit(index("v1", 100), key="ann", debounce=5)
        await asyncio.sleep(20)
        assert (await first.info()).status == "waiting"
        second = await app.submit(index("v2"), key="ann", debounce=5)
        third = await app.submit(index("v3"), key="ann", debounce=5)
        assert first.id != second.id == third.id
        return await first.result(), await second.result()

    assert worker(world).do(main) == ("v1", "v3")


def test_keys_ids_and_workflows_have_windows_of_their_own(world):
    async def main(app):
        runs = [
            await app.submit(index("v"), key="ann", window=HOUR),
            await app.submit(index("v"), key="bob", window=HOUR),
            await app.submit(other("v"), key="ann", window=HOUR),
            await app.submit(other("v"), id="ann", window=HOUR),
            await app.submit(other("v"), id="a", key="ann", window=HOUR),
        ]
        return len({run.id for run in runs})

    assert worker(world).do(main) == 5


def test_a_repeat_in_the_window_is_rejected_and_names_its_end(world):
    async def main(app):
        until = await now(app) + 60
        first = await app.submit(index("v1"), key="ann", window=60)
        await asyncio.sleep(59)
        with pytest.raises(AlreadySubmitted) as raised:
            await app.submit(index("v2"), key="ann", window=60)
        error = raised.value
        assert isinstance(error, Conflict)
        assert (error.id, error.until) == (first.id, datetime.fromtimestamp(until, UTC))
        assert f"ends at {error.until.isoformat(timespec='seconds')[:19]}Z" in str(error)
        await asyncio.sleep(1.1)
        second = await app.submit(index("v3"), key="ann", window=60)
        return await first.result(), await second.result(), len(await app.runs())

    assert worker(world).do(main) == ("v1", "v3", 2)


def test_a_repeat_in_the_window_joins_the_run(world):
    async def main(app):
        submit = [
            await app.submit(index(f"v{n}"), id="doc", window=60, on_repeat="join")
            for n in range(3)
        ]
        await asyncio.sleep(61)
        later = await app.submit(index("v3"), id="doc", window=60, on_repeat="join")
        return [await run.result() for run in (*submit, later)]

    assert worker(world).do(main) == ["v0", "v0", "v0", "v3"]


def test_a_repeat_in_the_window_replaces_a_run_that_waits(world):
    async def main(app):
        first = await app.submit(index("v1"), id="doc", window=60, on_repeat="replace", delay=20)
        second = await app.submit(
            index("v2"), id="doc", window=60, on_repeat="replace", priority=2, by="bob"
        )
        assert first.id == second.id
        info = await second.info()
        return await first.result(), info.priority, info.by

    assert worker(world).do(main) == ("v2", 2, "bob")


@pytest.mark.parametrize("ended", [False, True])
def test_a_repeat_in_the_window_replaces_a_run_that_has_begun(world, ended):
    async def main(app):
        first = await app.submit(
            index("v1", 0 if ended else 100), id="doc", window=60, on_repeat="replace"
        )
        await asyncio.sleep(10)
        second = await app.submit(index("v2"), id="doc", window=60, on_repeat="replace")
        third = await app.submit(index("v3"), id="doc", window=60, on_repeat="replace")
        assert first.id != second.id == third.id
        assert await second.result() == "v3"
        if ended:
            return await first.result()
        with pytest.raises(RunCancelled, match="replaced by a later submission of doc"):
            await first.result()
        return "v1"

    assert worker(world).do(main) == "v1"


WRONG = {
    "id or a key": {"debounce": 5},
    "needs an id": {"window": 5},
    "exclude each other": {"debounce": 5, "window": 5, "key": "a"},
    "which is missing": {"debounce_max": 5, "key": "a"},
    "on_repeat says": {"on_repeat": "join", "key": "a"},
    "must be at least": {"debounce": 5, "debounce_max": 4, "key": "a"},
    "leave delay out": {"debounce": 5, "delay": 1, "key": "a"},
    "on_conflict has no effect": {"window": 5, "on_conflict": "join", "key": "a"},
    '"reject", "join" or "replace"': {"window": 5, "on_repeat": "wait", "key": "a"},
    "debounce=0 ": {"debounce": 0, "key": "a"},
    "window=-1 ": {"window": -1, "key": "a"},
    "window=inf ": {"window": float("inf"), "key": "a"},
    "debounce=True ": {"debounce": True, "key": "a"},
    "debounce_max='9' ": {"debounce": 5, "debounce_max": "9", "key": "a"},
}


@pytest.mark.parametrize("message", WRONG)
def test_options_that_make_no_sense_are_refused(world, message):
    async def main(app):
        with pytest.raises(SettingsError) as raised:
            await app.submit(index("v"), **WRONG[message])
        assert message in str(raised.value)
        return await app.runs()

    assert world.do(main) == []


def test_an_id_that_leaves_no_room_for_the_time_is_refused(world):
    async def main(app):
        with pytest.raises(LimitExceeded, match="id of a run in a window"):
            await app.submit(index("v"), id="x" * app.settings.id_length_max, window=5)
        return await app.runs()

    assert world.do(main) == []


def test_another_workflow_or_queue_under_the_id_is_a_conflict(world):
    async def main(app):
        await app.submit(index("v1"), id="doc", debounce=60)
        with pytest.raises(Conflict, match="was started as index"):
            await app.submit(other("v2"), id="doc", debounce=60)
        with pytest.raises(Conflict, match="in queue 'slow'"):
            await app.submit(index("v2"), id="doc", debounce=60, queue="slow")
        with pytest.raises(Conflict, match="with key 'ann'"):
            await app.submit(index("v2"), id="doc", debounce=60, key="ann")
        return [info.id for info in await app.runs()]

    assert len(world.do(main)) == 1


@pytest.mark.parametrize("on_repeat", ["reject", "join"])
def test_of_many_calls_at_once_one_is_accepted(world, on_repeat):
    async def main(app):
        another = world.another()

        async def submit(number: int):
            one = app if number % 2 else another
            try:
                return await one.submit(
                    index(f"v{number}"), key="ann", window=60, on_repeat=on_repeat
                )
            except AlreadySubmitted:
                return None

        async with another:
            found = await asyncio.gather(*map(submit, range(20)))
        runs = [run for run in found if run is not None]
        assert len(await app.runs()) == 1
        return len(runs), len({run.id for run in runs})

    assert world.do(main) == ((1, 1) if on_repeat == "reject" else (20, 1))
