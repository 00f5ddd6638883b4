"""Looks at the store for /metrics are bounded in number, in age and in how long callers wait."""

import asyncio
import threading
from collections import Counter
from types import SimpleNamespace

import httpx
import pytest

from outlast import Outlast, step, workflow
from outlast.http import Server, connection, store_stats
from outlast.http.store_stats import DRAINS_FEW, recent
from outlast.store.rows import DrainRow
from outlast.telemetry import names
from support.waiting import WAIT_SECONDS, wait_until_async

NOW = 1_000_000.0
STORES = ["outlast_queue_depth", "outlast_queue_oldest_seconds", "outlast_queue_runs", "outlast_queue_returned_seconds", "outlast_workers", "outlast_recent_drains"]  # fmt: skip


@step
async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)


@workflow
async def sleeper(seconds: float) -> None:
    await nap(seconds)


def shown(app, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(one.labels.values()): one.value
        for one in app.status_provider.samples()
        if one.name == name
    }


@pytest.fixture
def address(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'agents.db'}"


def slow(store, method: str, gate: threading.Event) -> list[str]:
    """Have a method of the real store wait for a gate, and return the list of its calls."""
    real, called = getattr(store, method), []

    def waits(*args):
        called.append(method)
        assert gate.wait(WAIT_SECONDS), "the test never opened the gate"
        return real(*args)

    setattr(store, method, waits)
    return called


def test_hanging_store_is_read_once_and_blocks_no_request(address, monkeypatch):
    monkeypatch.setattr(connection, "REQUEST_SECONDS_MAX", WAIT_SECONDS)
    gate = threading.Event()

    def wait_for_a_look(seconds: float) -> None:
        monkeypatch.setattr(store_stats, "WITHIN_SECONDS", seconds)
        monkeypatch.setattr(store_stats.StoreStatsPoller.refresh, "__defaults__", (seconds,))

    async def main() -> None:
        async with Outlast(address, worker=True, workflows=[sleeper]) as app:
            called = slow(app._open.store, "queues", gate)
            server = Server(app, "127.0.0.1:0")
            server.start()
            async with httpx.AsyncClient(
                base_url=server.url, trust_env=False, timeout=WAIT_SECONDS
            ) as client:
                wait_for_a_look(WAIT_SECONDS)
                scrapes = [asyncio.create_task(client.get("/metrics")) for _ in range(3)]
                await wait_until_async(lambda: called)
                assert (await client.get("/health")).status_code == 200
                assert not any(scrape.done() for scrape in scrapes), "they wait for the look"
                wait_for_a_look(0.0)
                hanging = (await client.get("/metrics")).text
                assert "outlast_store_up 0.0" in hanging
                assert 'outlast_workers{status="alive"} 1.0' in hanging, "the quick look is over"
                wait_for_a_look(WAIT_SECONDS)
                gate.set()
                for scrape in scrapes:
                    assert "outlast_store_up" in (await scrape).text
                await wait_until_async(lambda: app.status_provider.store_stats._under_way is None)
                assert "outlast_store_up 1.0" in (await client.get("/metrics")).text
            await server.stopped(WAIT_SECONDS)
            assert called == ["queues"]

    asyncio.run(main())


def test_a_drain_does_not_wait_for_a_look(address):
    gate = threading.Event()

    async def main() -> None:
        async with Outlast(address, worker=True, workflows=[sleeper]) as app:
            called = slow(app._open.store, "drains", gate)
            asking = asyncio.create_task(
                asyncio.to_thread(app.status_provider.store_stats.refresh, WAIT_SECONDS)
            )
            await wait_until_async(lambda: called)
            await app.drain("test")
            assert not asking.done()
            gate.set()
            await asking

    asyncio.run(main())


def test_failing_store_is_down_and_old_values_keep_their_age(world):
    async def main(app):
        app.status_provider.refresh()
        before = shown(app, "outlast_store_up"), shown(app, "outlast_workers")
        look = app.status_provider.store_stats
        look._quick = look._quick._replace(at=look._quick.at - 50)
        real = app.store.workers
        app.store.workers = lambda: 1 / 0
        app.status_provider.refresh()
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


def test_expensive_look_is_kept_for_20_times_its_cost(world, monkeypatch):
    clock, calls = [1000.0], []
    monkeypatch.setattr(store_stats, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    async def main(app):
        real = app.store.queues

        def queues():
            calls.append("whole")
            clock[0] += 0.3
            return real()

        app.store.queues = queues
        for seconds, looked in ((0.0, 1), (0.0, 1), (5.6, 1), (0.2, 2)):
            clock[0] += seconds
            app.status_provider.refresh()
            assert len(calls) == looked, "20 times 0.3 s"
        app.store.queues = real

    world.do(main)


def test_look_is_kept_for_at_most_two_minutes(world):
    async def main(app):
        look = app.status_provider.store_stats
        app.status_provider.refresh()
        look._quick = look._quick._replace(workers=Counter(alive=1000))
        look._poll_whole()
        return look._keep

    assert world.do(main) == 120.0


def test_closed_app_makes_no_look(address):
    opened = threading.Event()
    opened.set()

    async def main():
        async with Outlast(address) as app:
            engine, face = app._open, app.status_provider
            face.refresh()
            called = slow(engine.store, "workers", opened)
        face.store_stats._quick = None
        face.refresh()
        return called

    assert asyncio.run(main()) == []


def test_delayed_runs_do_not_count_towards_queue_depth(world):
    async def main(app):
        await app.submit(sleeper(1), id="ready")
        for number in range(4):
            await app.submit(sleeper(1), id=f"later{number}", delay=3 * 3600)
        app.status_provider.refresh()
        return shown(app, "outlast_queue_depth"), shown(app, "outlast_queue_runs")

    depth, runs = world.do(main)
    assert depth == {("default",): 1}
    assert runs["default", "delayed"] == 4


def test_queues_over_the_series_limit_are_combined(world):
    world.settings = {"metrics_series_max": 24}

    async def main(app):
        for number in range(10):
            await app.queue(f"q{number}").put_many(range(number))
        app.status_provider.refresh()
        first = shown(app, "outlast_queue_depth")
        await app.queue("a-new-one").put("x")
        look = app.status_provider.store_stats
        look._quick = look._whole = None
        app.status_provider.refresh()
        return first, shown(app, "outlast_queue_depth")

    first, then = world.do(main)
    assert first == {("q1",): 1, ("q2",): 2, ("q3",): 3, ("other",): sum(range(4, 10))}
    assert then == first | {("other",): first["other",] + 1}, "who was first stays"


def test_stale_looks_are_not_exported(world):
    async def main(app):
        await app.queue("emails").put("x")
        app.status_provider.refresh()
        look, found = app.status_provider.store_stats, []
        for seconds in (200, 150):
            look._quick = look._quick._replace(at=look._quick.at - seconds)
            look._whole = look._whole._replace(at=look._whole.at - seconds)
            found.append({name: shown(app, name) for name in STORES})
        return *found, shown(app, "outlast_store_age_seconds")

    old, too_old, age = world.do(main)
    assert all(old.values()), old
    assert not any(too_old.values()), too_old
    assert age["quick",] > 300 and age["whole",] > 300, "and that is reported"


def test_own_queues_keep_their_names_over_the_series_limit(address):
    async def main():
        async with Outlast(address, metrics_series_max=24) as app:
            for number in range(10):
                await app.queue(f"q{number}").put("x")
            await app.queue("zzz").put("x")
        async with Outlast(
            address, worker=True, workflows=[sleeper], queues="zzz", metrics_series_max=24
        ) as app:
            await asyncio.to_thread(app.status_provider.refresh)
            return shown(app, "outlast_queue_depth")

    found = asyncio.run(main())
    assert found["zzz",] == 1, found
    assert found["other",] == 8


def test_failed_look_exports_no_run_counts(address):
    async def main():
        async with Outlast(address, worker=True, workflows=[sleeper]) as app:
            app._open.store.queues = lambda: 1 / 0
            await asyncio.to_thread(app.status_provider.refresh)
            return shown(app, "outlast_queue_depth"), shown(app, "outlast_queue_runs")

    assert asyncio.run(main()) == ({("default",): 0}, {}), "a 0 would end an alert"


def test_look_without_a_thread_is_retried(address, monkeypatch):
    def no_thread(_):
        raise RuntimeError("can't start new thread")

    async def main():
        async with Outlast(address) as app:
            look = app.status_provider.store_stats
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", no_thread)
                look.refresh()
            before = shown(app, "outlast_store_up")
            await asyncio.to_thread(look.refresh, WAIT_SECONDS)
            return before, shown(app, "outlast_store_up"), shown(app, "outlast_workers")

    before, after, workers = asyncio.run(main())
    assert before == {(): 0.0}
    assert after == {(): 1.0}
    assert workers["alive",] == 1


# -- drains


def drain(
    number: int, ended: float | None, report: str = '{"seconds": 4.0, "released": 2}'
) -> DrainRow:
    began = NOW - 900 + number
    return DrainRow(f"w{number}", "host", 1, "test", began, ended, 3, report, ())


def test_drains_are_counted_by_their_end_within_the_last_15_minutes():
    rows = [
        drain(5, NOW - 1), drain(4, None, ""), drain(3, NOW - 10, f'{{"cut_short": true, "left": ["a"], "why": "x", "seen": {NOW - 880}}}'),
        drain(2, NOW - 20, '{"seconds": 9.0, "left": [{"what": "run", "id": "r"}], "not_checkpointed": ["r s#1"]}'), drain(1, NOW - 901),
    ]  # fmt: skip
    found = recent(lambda _: rows, NOW, 30)
    assert found.ends == {"clean": 1, "cut_short": 1, "left": 1}
    assert found.runs == {"released": 2, "left": 2, "completed": 0, "waiting": 0, "checkpointed": 0, "not_started": 0}  # fmt: skip
    assert found.not_checkpointed == 1
    assert found.seconds == [4.0, 9.0, 17.0], "not until a worker noticed"


def test_all_drains_are_read_only_when_a_few_do_not_suffice():
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
def test_unreadable_drain_report_hides_no_other(report):
    found = recent(lambda _: [drain(5, NOW - 1), drain(4, NOW - 2, report)], NOW, 30)
    assert found.ends["clean"] == (2 if report == "" else 1), "of what cannot be read nobody knows"
    assert found.seconds[0] == 4.0


@pytest.mark.parametrize("damage", ["text", b"\xff"])
def test_damaged_drain_row_hides_no_other(damage):
    rows = [
        drain(5, NOW - 1),
        drain(4, damage),
        drain(3, NOW - 2)._replace(reason=damage, host=damage, worker=damage),
    ]
    found = recent(
        lambda _: [*rows, *(drain(1, None)._replace(began=damage) for _ in range(DRAINS_FEW))],
        NOW,
        30,
    )
    assert found.ends == {"clean": 2}


def test_long_drain_is_not_missed():
    long = DrainRow(
        "long", "host", 1, "test", NOW - 7_200, NOW - 1, 3, '{"cut_short": true, "left": ["a"]}', ()
    )
    short = [drain(900 - number, NOW - 4_000)._replace(began=NOW - 5_000 - number) for number in range(DRAINS_FEW)]  # fmt: skip

    def drains(limit):
        return [*short, long][:limit]

    assert recent(drains, NOW, 7_200).ends == {"cut_short": 1}
    assert recent(drains, NOW, 30).ends == {}, "nobody has so long a grace"


def test_drain_metrics_exist_before_the_first_drain(world):
    async def main(app):
        app.status_provider.refresh()
        return {
            metric.name: shown(app, metric.name)
            for metric in names.METRICS
            if "recent" in metric.name
        }

    found = world.do(main)
    assert found["outlast_recent_drains"] == {("clean",): 0, ("left",): 0, ("cut_short",): 0}
    assert found["outlast_recent_drain_seconds"] == {("0.5",): 0, ("0.95",): 0, ("1",): 0}
    assert found["outlast_recent_not_checkpointed"] == {(): 0}


# -- queues


def test_returned_runs_are_exported_with_their_waiting_time(world):
    async def interrupted(app):
        await app.start(sleeper(100.0), id="run")
        await asyncio.sleep(1)
        await app.drain("test")

    world.settings = {"grace": 10, "checkpoint_reserve": 1, "exit_reserve": 1}
    world.do(interrupted)
    world.restart(after=50.0)

    async def look(app):
        app.status_provider.refresh()
        return shown(app, "outlast_queue_runs"), shown(app, "outlast_queue_returned_seconds")

    runs, seconds = world.do(look)
    assert runs["default", "returned"] == 1
    assert runs["default", "stuck"] == runs["default", "undoing"] == 0
    assert seconds["default",] == pytest.approx(50.0, abs=5)
