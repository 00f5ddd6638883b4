"""Looks at the store: bounded in how often they are made, how long anybody waits for them, and how many are under way."""

import asyncio
import threading
import time
from collections import Counter

import httpx
import pytest

from outlast import Outlast, step, workflow
from outlast.http import Server
from outlast.store.rows import DrainRow
from outlast.telemetry import looks, names
from outlast.telemetry.looks import DRAINS_FEW, recent

NOW = 1_000_000.0
STORES = ["outlast_queue_depth", "outlast_queue_oldest_seconds", "outlast_queue_runs", "outlast_queue_returned_seconds", "outlast_workers", "outlast_recent_drains"]  # fmt: skip


@step
async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)


@workflow
async def sleeper(seconds: float) -> None:
    await nap(seconds)


def shown(app, name: str) -> dict[tuple[str, ...], float]:
    return {tuple(one.labels.values()): one.value for one in app.face.samples() if one.name == name}


@pytest.fixture
def address(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'agents.db'}"


def slow(store, method: str, gate: threading.Event) -> list[float]:
    """Have a method of the real store wait; when it was called."""
    real, called = getattr(store, method), []

    def waits(*args):
        called.append(time.monotonic())
        gate.wait(30)
        return real(*args)

    setattr(store, method, waits)
    return called


def test_a_store_that_hangs_holds_up_nobody_and_gets_one_look(address, monkeypatch):
    monkeypatch.setattr(looks, "WITHIN_SECONDS", 0.3)
    monkeypatch.setattr(looks.Looks.refresh, "__defaults__", (0.3,))
    gate = threading.Event()

    async def main():
        async with Outlast(address, worker=True, workflows=[sleeper]) as app:
            called = slow(app._open.store, "queues", gate)
            server = Server(app, "127.0.0.1:0")
            server.start()
            async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20) as client:
                scrapes = [asyncio.create_task(client.get("/metrics")) for _ in range(3)]
                await asyncio.sleep(0.05)
                began = time.monotonic()
                assert (await client.get("/health")).status_code == 200
                answered = time.monotonic() - began
                texts = [(await scrape).text for scrape in scrapes]
                again = (await client.get("/metrics")).text
                gate.set()
                for _ in range(200):
                    await asyncio.sleep(0.02)
                    if app._open.looks._under_way is None:
                        break
                after = (await client.get("/metrics")).text
            await server.stopped(2.0)
            return answered, texts, again, after, len(called)

    answered, texts, again, after, calls = asyncio.run(main())
    assert answered < 0.25, "while the numbers were waited for"
    assert all("outlast_store_up" in text for text in texts)
    assert "outlast_store_up 0.0" in again
    assert "outlast_store_up 1.0" in after
    assert 'outlast_workers{status="alive"} 1.0' in again, "the quick look does not wait for the other one"
    assert calls == 1


def test_a_drain_does_not_wait_for_a_look(address):
    gate = threading.Event()

    async def main():
        async with Outlast(address, worker=True, workflows=[sleeper], grace=5) as app:
            slow(app._open.store, "drains", gate)
            asking = asyncio.create_task(asyncio.to_thread(app._open.looks.refresh, 20.0))
            await asyncio.sleep(0.1)
            began = time.monotonic()
            await app.drain("test")
            drained = time.monotonic() - began
            gate.set()
            await asking
            return drained

    assert asyncio.run(main()) < 2.0


def test_a_store_that_fails_is_said_to_be_down_and_what_was_seen_stays_with_its_age(world):
    async def main(app):
        app.face.look()
        before = shown(app, "outlast_store_up"), shown(app, "outlast_workers")
        look = app._open.looks
        look._quick = look._quick._replace(at=look._quick.at - 50)
        real = app.store.workers
        app.store.workers = lambda: 1 / 0
        app.face.look()
        app.store.workers = real
        after = (
            shown(app, "outlast_store_up"),
            shown(app, "outlast_workers"),
            shown(app, "outlast_store_age_seconds"),
        )
        return before, after

    (up, workers), (up_after, workers_after, age) = world.do(main)
    assert (up, up_after) == ({(): 1.0}, {(): 0.0})
    assert workers == workers_after
    assert age["quick",] > 49


def test_a_look_is_kept_for_a_while_and_the_whole_one_for_longer_the_more_it_costs(world):
    async def main(app):
        look, calls = app._open.looks, []
        real = app.store.queues

        def queues():
            calls.append("whole")
            time.sleep(0.3)
            return real()

        app.store.queues = queues
        app.face.look()
        app.face.look()
        first = list(calls)
        look._whole = look._whole._replace(at=look._whole.at - 5.5)
        app.face.look()
        within = list(calls)
        look._whole = look._whole._replace(at=look._whole.at - 2)
        app.face.look()
        app.store.queues = real
        return first, within, calls

    first, within, calls = world.do(main)
    assert first == within == ["whole"], "20 times what it cost"
    assert calls == ["whole", "whole"]


def test_however_many_workers_there_are_it_is_not_kept_for_longer_than_two_minutes(world):
    async def main(app):
        look = app._open.looks
        app.face.look()
        look._quick = look._quick._replace(workers=Counter(alive=1000))
        look._look_at_all()
        return look._keep

    assert world.do(main) == 120.0


def test_an_app_that_is_closed_looks_no_more(address):
    async def main():
        async with Outlast(address) as app:
            house, face = app._open, app.face
            face.look()
            called = slow(house.store, "workers", threading.Event())
        house.looks._quick = None
        face.look()
        return called

    assert asyncio.run(main()) == []


def test_queues_beyond_the_bound_are_shown_together(world):
    world.settings = {"metrics_series_max": 21}

    async def main(app):
        for number in range(10):
            await app.queue(f"q{number}").put_many(range(number))
        app.face.look()
        first = shown(app, "outlast_queue_depth")
        await app.queue("a-new-one").put("x")
        look = app._open.looks
        look._quick = look._whole = None
        app.face.look()
        return first, shown(app, "outlast_queue_depth")

    first, then = world.do(main)
    assert first == {("q1",): 1, ("q2",): 2, ("q3",): 3, ("other",): sum(range(4, 10))}
    assert then == first | {("other",): first["other",] + 1}, "who was first stays"


def test_what_was_seen_too_long_ago_is_not_shown_for_who_asks_all_workers_would_take_the_greatest(world):
    async def main(app):
        await app.queue("emails").put("x")
        app.face.look()
        look, found = app._open.looks, []
        for seconds in (290, 20):
            look._quick = look._quick._replace(at=look._quick.at - seconds)
            look._whole = look._whole._replace(at=look._whole.at - seconds)
            found.append({name: shown(app, name) for name in STORES})
        return *found, shown(app, "outlast_store_age_seconds")

    old, too_old, age = world.do(main)
    assert all(old.values()), old
    assert not any(too_old.values()), too_old
    assert age["quick",] > 300 and age["whole",] > 300, "and that is said"


def test_a_workers_own_queues_keep_their_names_however_many_others_there_are(address):
    async def main():
        async with Outlast(address, metrics_series_max=21) as app:
            for number in range(10):
                await app.queue(f"q{number}").put("x")
            await app.queue("zzz").put("x")
        async with Outlast(
            address, worker=True, workflows=[sleeper], queues="zzz", metrics_series_max=21
        ) as app:
            await asyncio.to_thread(app.face.look)
            return shown(app, "outlast_queue_depth")

    found = asyncio.run(main())
    assert found["zzz",] == 1, found
    assert found["other",] == 8


def test_nothing_is_said_of_runs_that_were_not_looked_at(address):
    async def main():
        async with Outlast(address, worker=True, workflows=[sleeper]) as app:
            app._open.store.queues = lambda: 1 / 0
            await asyncio.to_thread(app.face.look)
            return shown(app, "outlast_queue_depth"), shown(app, "outlast_queue_runs")

    assert asyncio.run(main()) == ({("default",): 0}, {}), "a 0 would end an alert"


def test_a_look_that_cannot_be_begun_is_begun_the_next_time(address, monkeypatch):
    def no_thread(_):
        raise RuntimeError("can't start new thread")

    async def main():
        async with Outlast(address) as app:
            look = app._open.looks
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", no_thread)
                look.refresh()
            before = shown(app, "outlast_store_up")
            await asyncio.to_thread(look.refresh, 20.0)
            return before, shown(app, "outlast_store_up"), shown(app, "outlast_workers")

    before, after, workers = asyncio.run(main())
    assert before == {(): 0.0}
    assert after == {(): 1.0}
    assert workers["alive",] == 1


# -- drains


def drain(number: int, ended: float | None, report: str = '{"seconds": 4.0, "released": 2}') -> DrainRow:
    began = NOW - 900 + number
    return DrainRow(f"w{number}", "host", 1, "test", began, ended, 3, report, ())


def test_drains_are_counted_by_their_end_within_the_last_15_minutes():
    rows = [
        drain(5, NOW - 1), drain(4, None, ""), drain(3, NOW - 10, f'{{"cut_short": true, "left": ["a"], "why": "x", "seen": {NOW - 880}}}'),
        drain(2, NOW - 20, '{"seconds": 9.0, "left": [{"what": "run", "id": "r"}], "not_checkpointed": ["r s#1"]}'), drain(1, NOW - 901),
    ]  # fmt: skip
    found = recent(lambda _: rows, NOW, 30)
    assert found.ends == {"clean": 1, "cut_short": 1, "left": 1}
    assert found.runs == {"released": 2, "left": 2, "completed": 0, "waiting": 0, "checkpointed": 0, "given_back": 0}  # fmt: skip
    assert found.not_checkpointed == 1
    assert found.seconds == [4.0, 9.0, 17.0], "not until somebody noticed"


def test_all_drains_are_asked_for_only_where_a_few_are_not_enough():
    asked = []

    def drains(limit):
        asked.append(limit)
        return [drain(number, NOW - 1) for number in reversed(range(200))][:limit]

    assert sum(recent(drains, NOW, 30).ends.values()) == 200
    assert asked == [DRAINS_FEW, 1000], "a rollout of 200"
    asked.clear()
    recent(drains, NOW + 10 * 3600, 30)
    assert asked == [DRAINS_FEW]


@pytest.mark.parametrize("report", ["", "{", "[1]", '{"left": 3}', '{"cleanup": {"a": 1}}'])
def test_a_report_that_another_version_wrote_hides_nothing_else(report):
    found = recent(lambda _: [drain(5, NOW - 1), drain(4, NOW - 2, report)], NOW, 30)
    assert found.ends["clean"] == (2 if report == "" else 1), "of what cannot be read nobody knows"
    assert found.seconds[0] == 4.0


@pytest.mark.parametrize("damage", ["text", b"\xff"])
def test_what_is_no_time_or_no_text_in_a_row_of_a_drain_hides_nothing_else(damage):
    rows = [
        drain(5, NOW - 1),
        drain(4, damage),
        drain(3, NOW - 2)._replace(reason=damage, host=damage, worker=damage),
    ]
    found = recent(
        lambda _: [*rows, *(drain(1, None)._replace(began=damage) for _ in range(DRAINS_FEW))], NOW, 30
    )
    assert found.ends == {"clean": 2}


def test_a_drain_that_may_have_taken_hours_is_not_missed():
    long = DrainRow(
        "long", "host", 1, "test", NOW - 7_200, NOW - 1, 3, '{"cut_short": true, "left": ["a"]}', ()
    )
    short = [drain(900 - number, NOW - 4_000)._replace(began=NOW - 5_000 - number) for number in range(DRAINS_FEW)]  # fmt: skip

    def drains(limit):
        return [*short, long][:limit]

    assert recent(drains, NOW, 7_200).ends == {"cut_short": 1}
    assert recent(drains, NOW, 30).ends == {}, "nobody has so long a grace"


def test_what_is_shown_of_drains_is_there_before_there_was_any(world):
    async def main(app):
        app.face.look()
        return {metric.name: shown(app, metric.name) for metric in names.METRICS if "recent" in metric.name}

    found = world.do(main)
    assert found["outlast_recent_drains"] == {("clean",): 0, ("left",): 0, ("cut_short",): 0}
    assert found["outlast_recent_drain_seconds"] == {("0.5",): 0, ("0.95",): 0, ("1",): 0}
    assert found["outlast_recent_not_checkpointed"] == {(): 0}


# -- queues


def test_what_came_back_is_shown_with_how_long_it_has_waited(world):
    async def interrupted(app):
        await app.start(sleeper(100.0), id="run")
        await asyncio.sleep(1)
        await app.drain("test")

    world.settings = {"grace": 10, "checkpoint_reserve": 1, "exit_reserve": 1}
    world.do(interrupted)
    world.restart(after=50.0)

    async def look(app):
        app.face.look()
        return shown(app, "outlast_queue_runs"), shown(app, "outlast_queue_returned_seconds")

    runs, seconds = world.do(look)
    assert runs["default", "returned"] == 1
    assert runs["default", "stuck"] == runs["default", "undoing"] == 0
    assert seconds["default",] == pytest.approx(50.0, abs=5)
