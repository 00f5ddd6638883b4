"""The checks on real stores: silent on runs that went as they should, loud for each thing that is not as it should be."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outlast import KEY, Happened, Outlast, compensate_with, effect, receive, step, unit, workflow
from outlast.store.address import store_at
from outlast.store.commands import (
    Claim,
    Drain,
    RegisterWorker,
    Release,
    SetQueueLimits,
    Submit,
    Sweep,
)
from outlast.tools.chaos.checks import check
from outlast.tools.chaos.findings import ASKS, Scope
from outlast.tools.chaos.ledger_summary import LedgerSummary
from support.waiting import WAIT_SECONDS


@effect(timeout=1)
async def pay(amount: int, key: str = KEY) -> str:
    return key


@pay.verify
async def was_paid(key: str = KEY) -> Happened[str] | None:
    return None


@pay.compensate
async def pay_back(key: str, effect_key: str) -> str:
    return effect_key


@effect(timeout=1, undo=None, idempotent=True)
async def tidy(key: str = KEY) -> None:
    pass


@step
async def think(number: int) -> int:
    return number


class Enough(Exception):
    pass


@workflow
async def good(number: int) -> int:
    await pay(number)
    return await think(number)


@workflow
async def bad(number: int) -> int:
    await compensate_with(tidy)
    await pay(number)
    await pay(number + 1)
    await child(number)
    raise Enough(number)


@workflow
async def child(number: int) -> int:
    await pay(number)
    return number


@workflow
async def mixed(number: int) -> int:
    await pay(number)
    try:
        async with unit("first"):
            await pay(number)
            raise Enough(number)
    except Enough:
        return await think(number)


@workflow
async def endless(number: int) -> int:
    await pay(number)
    await receive("never")
    return number


def fill(address: str) -> None:
    async def main() -> None:
        async with Outlast(
            address, worker=True, ramp=0, workflows=[good, bad, child, mixed, endless]
        ) as app:
            runs = [await app.submit(flow(7), id=flow.name) for flow in (good, bad, mixed, endless)]
            for run in runs[:3]:
                await asyncio.wait([asyncio.ensure_future(run.result(WAIT_SECONDS))])
            while (await app.runs(status="waiting")) == [] and "pay#1" not in str(
                await app.journal("endless")
            ):
                await asyncio.sleep(0.01)
            await app.cancel("endless", "enough")
            await asyncio.wait([asyncio.ensure_future(runs[3].result(WAIT_SECONDS))])

    asyncio.run(main())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "outlast.db"
    fill(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    path = tmp_path / "outlast.db"
    path.write_bytes(filled.read_bytes())
    return path


def judged(address, **scope):
    store = store_at(address if "://" in str(address) else f"sqlite:///{address}")
    store.open()
    with closing(store):
        return check(store, Scope(**{"since": 0.0, "thorough": True, **scope}))


def tamper(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute(sql, values).rowcount > 0, "nothing was tampered with"


def alarms(verdict) -> dict:
    return {one.name: one.evidence for one in verdict.checks if one.outcome == "violated"}


OF = "run = (SELECT pk FROM runs WHERE id = ?)"


def test_runs_that_went_as_they_should_raise_no_alarm(place):
    fill(place)
    verdict = judged(place)
    assert alarms(verdict) == {}
    assert verdict.looked_at["runs"] == 5 and verdict.looked_at["entries"] > 20
    assert verdict["compensated"].looked_at == 5
    assert verdict["ended"].facts["statuses"] == {"cancelled": 2, "done": 2, "failed": 1}, (
        "the child was undone"
    )
    assert [one.name for one in verdict.checks] == list(ASKS)


def test_what_only_a_ledger_knows_is_not_known_without_one(copy):
    verdict = judged(copy)
    assert {one.name for one in verdict.checks if one.outcome == "not known"} == {
        "none lost", "no action twice", "no stale fence", "redone",
    }  # fmt: skip
    assert verdict.outcome == "not known" and not verdict.violated


def test_entry_that_is_missing_is_found(copy):
    tamper(copy, f"DELETE FROM entries WHERE {OF} AND seq = 2", "good")
    assert list(alarms(judged(copy))) == ["none lost", "compensated"], (
        "its effect is open without the confirmation"
    )


def test_run_that_was_acknowledged_and_is_not_there_is_found(copy):
    verdict = judged(copy, acknowledged=["good", "gone"])
    assert alarms(verdict) == {"none lost": ["gone was acknowledged and is not in the store"]}


def test_fence_that_falls_is_found(copy):
    tamper(copy, f"UPDATE entries SET fence = fence + 1000 WHERE {OF} AND seq = 2", "good")
    (found,) = alarms(judged(copy)).items()
    assert found[0] == "no stale fence" and "good: entry 3" in found[1][0]


def test_result_that_was_recorded_twice_is_found(copy):
    tamper(
        copy,
        "INSERT INTO entries (run, seq, fence, kind, key, at, value) SELECT run, 99, fence, kind, key, at, value FROM entries"
        f" WHERE {OF} AND kind = 'step' AND key LIKE 'pay%'",
        "good",
    )
    assert "good: pay#1 has two results" in alarms(judged(copy))["no action twice"][0]


def test_compensation_that_was_not_made_is_found(copy):
    tamper(copy, f"DELETE FROM entries WHERE {OF} AND key LIKE 'undo:pay%'", "endless")
    found = alarms(judged(copy))["compensated"]
    assert found == ["endless is cancelled, but pay#1 happened (entry 1) and was not compensated"]


def test_child_that_is_not_undone_with_its_parent_is_found(copy):
    tamper(copy, "UPDATE runs SET status = 'done' WHERE parent IS NOT NULL")
    tamper(
        copy,
        "DELETE FROM entries WHERE run = (SELECT pk FROM runs WHERE parent IS NOT NULL) AND (key LIKE 'undo:%' OR kind = 'undoing')",
    )
    (found,) = alarms(judged(copy))["compensated"]
    assert "is done and its parent bad is failed, but pay#1 happened" in found


def test_dead_letter_and_a_parked_run_are_found_but_not_old_ones(copy):
    tamper(copy, "UPDATE runs SET status = 'dead', reason = 'died 5 times' WHERE id = 'good'")
    tamper(
        copy,
        "UPDATE runs SET status = 'parked', ended = NULL, reason = 'unknown' WHERE id = 'mixed'",
    )
    found = alarms(judged(copy))["dead letters and parked"]
    assert sorted(found) == ["good is a dead letter: died 5 times", "mixed is parked: unknown"]
    assert alarms(judged(copy, since=1e11)) == {}


def test_run_that_has_not_ended_when_all_is_over_is_found(copy):
    tamper(copy, "UPDATE runs SET status = 'queued', ended = NULL WHERE id = 'good'")
    assert "good is queued" in alarms(judged(copy, over=True))["ended"][0]
    assert "ended" not in alarms(judged(copy)), "on a store that lives it is new work that waits"


def test_run_that_ended_otherwise_than_meant_is_found(copy):
    verdict = judged(copy, amiss=lambda row: "is not as it should be" if row.id == "good" else None)
    assert alarms(verdict) == {"ended": ["good is not as it should be"]}


def test_slow_recovery_is_found(copy):
    tamper(copy, "UPDATE runs SET lives = 2, deaths = 1 WHERE id = 'good'")
    tamper(
        copy,
        f"UPDATE entries SET seq = 4, at = at + 500, fence = fence + 1 WHERE {OF} AND seq = 3",
        "good",
    )
    tamper(copy, "UPDATE runs SET fence = fence - 1 WHERE id = 'good'")
    tamper(
        copy,
        "INSERT INTO entries (run, seq, fence, kind, key, at, value) SELECT run, 3, -fence, 'death', '', at, json_object('why', 'died', 'seen', at)"
        f" FROM entries WHERE {OF} AND seq = 2",
        "good",
    )
    verdict = judged(copy)
    (found,) = alarms(verdict)["recovery"]
    assert found.startswith("good continued 500.0 s after its death")
    assert verdict["recovery"].facts["death"]["count"] == 1
    assert alarms(judged(copy, objective=600)) == {}
    assert alarms(judged(copy, recovered=lambda *_: 1.5)) == {}, "whoever knows better is believed"


# With a ledger


def written(path: Path, *, without: str = "", twice: str = "") -> LedgerSummary:
    """What a ledger would have of these runs."""
    summary, undoes = LedgerSummary(), {}
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            "SELECT runs.id, entries.key, entries.value, entries.fence FROM entries JOIN runs ON pk = run WHERE kind = 'intent' ORDER BY run, seq"
        ).fetchall()
    for run, place, value, fence in rows:
        key = json.loads(value)["key"]
        undoes[run, place] = key
        undone = (
            undoes.get((run, place.removeprefix("undo:"))) if place.startswith("undo:") else None
        )
        if f"{run} {place}" == without:
            continue
        for _ in range(2 if f"{run} {place}" == twice else 1):
            summary.add(
                {
                    "n": 0,
                    "what": "undo" if undone else "act",
                    "key": key,
                    "run": run,
                    "fence": fence,
                    "undoes": undone,
                }
            )
    return summary


def told(path, summary):
    return alarms(judged(path, summary=summary))


def test_ledger_that_agrees_raises_no_alarm(copy):
    assert told(copy, written(copy)) == {}


def test_action_that_was_done_twice_is_found_by_the_ledger(copy):
    found = told(copy, written(copy, twice="good pay#1"))
    assert "of good was done once more" in found["no action twice"][0]


def test_action_that_the_journal_has_and_the_ledger_has_not_is_found(copy):
    found = told(copy, written(copy, without="good pay#1"))
    assert (
        "good: pay#1 happened according to the journal: True, to the ledger: False"
        in found["none lost"]
    )


def test_action_that_no_journal_has_is_found(copy):
    summary = written(copy)
    summary.add({"n": 0, "what": "act", "key": "unheard of", "run": "good", "fence": 10**6})
    assert (
        "good: the ledger has unheard of, but no entry of the run intended it"
        in told(copy, summary)["none lost"]
    )


def test_action_that_was_not_undone_is_found_by_the_ledger(copy):
    found = told(copy, written(copy, without="endless undo:pay#1"))
    assert "endless: the ledger has pay#1 1 times instead of 0" in found["compensated"]


def test_action_that_was_intended_again_under_another_key_is_found(copy):
    """Each key was acted on once, and all the same it happened twice."""
    before = written(copy)
    tamper(
        copy,
        "UPDATE entries SET value = json_set(value, '$.key', 'another') WHERE kind = 'intent' AND key = 'pay#1' AND "
        + OF,
        "good",
    )
    key = next(iter(before.of_run["good"]))
    assert key != "another"
    with closing(
        sqlite3.connect(copy, isolation_level=None)
    ) as db:  # the first intent, of which nobody knew what came
        db.execute("UPDATE entries SET seq = seq + 1000 WHERE " + OF, ("good",))
        db.execute("UPDATE entries SET seq = seq - 999 WHERE " + OF, ("good",))
        db.execute(
            "INSERT INTO entries (run, seq, fence, kind, key, at, args, value) SELECT run, 1, fence, kind, key, at, args, "
            f"json_set(value, '$.key', '{key}') FROM entries WHERE kind = 'intent' AND key = 'pay#1' AND {OF}",
            ("good",),
        )
    before.add({"n": 0, "what": "act", "key": "another", "run": "good", "fence": 10**6})
    assert told(copy, before) == {
        "no action twice": [
            f"good: the ledger has {key}, but its call was intended again under another key"
        ]
    }


def test_item_that_is_done_and_was_never_handled_is_found(tmp_path):
    address = f"sqlite:///{tmp_path}/o.db"

    async def handled() -> None:
        async with Outlast(address, worker=False, signals=0) as app:
            queue = app.queue("mails")
            await queue.put("x", id="one")
            item = await queue.claim(wait=10)
            await item.ack()

    asyncio.run(handled())
    assert told(address, LedgerSummary()) == {
        "none lost": ["mails/one is done, but the ledger received no request of it"]
    }
    summary = LedgerSummary(
        [{"n": 0, "what": "act", "key": "item mails/one", "run": "mails/one", "fence": 1}]
    )
    assert told(address, summary) == {}


def test_result_of_a_step_whose_body_never_began_is_found(copy):
    summary = written(copy)
    summary.add(
        {"n": 0, "what": "began", "key": "think#1", "run": "good", "fence": 1, "attempt": 1}
    )
    found = told(copy, summary)["none lost"]
    assert found == ["mixed: think#1 has a result, but the ledger never saw its body start"]


def test_where_no_lost_life_can_be_timed_recovery_is_not_known(copy):
    tamper(copy, "UPDATE entries SET seq = seq + 1 WHERE seq > 2 AND " + OF, "good")
    tamper(
        copy,
        "INSERT INTO entries (run, seq, fence, kind, key, at, value) SELECT run, 3, -fence, 'death', '', at, json_object('why', 'died', 'seen', at)"
        f" FROM entries WHERE {OF} AND seq = 2",
        "good",
    )
    verdict = judged(copy, recovered=lambda *_: None)
    assert (
        verdict["recovery"].outcome == "not known"
        and "1 lost lives" in verdict["recovery"].unknown[0]
    )


def test_step_that_began_after_its_result_was_on_record_is_found(copy):
    summary = written(copy)
    with closing(sqlite3.connect(copy)) as db:
        ((fence,),) = db.execute(
            f"SELECT fence FROM entries WHERE key = 'think#1' AND {OF}", ("good",)
        ).fetchall()
    summary.add(
        {"n": 0, "what": "began", "key": "think#1", "run": "good", "fence": fence, "attempt": 1}
    )
    assert "redone" not in told(copy, summary)
    summary.add(
        {"n": 0, "what": "began", "key": "think#1", "run": "good", "fence": fence + 1, "attempt": 1}
    )
    assert (
        f"think#1 started under fence {fence + 1}, after its result was recorded under {fence}"
        in told(copy, summary)["redone"][0]
    )
    again = written(copy)
    for _ in range(2):
        again.add(
            {"n": 0, "what": "began", "key": "think#1", "run": "good", "fence": fence, "attempt": 1}
        )
    assert "started twice in one attempt of one life" in told(copy, again)["redone"][0]


# On a store that lives


def living(address):
    """A store with a run that its worker lost, and with another worker that knows its workflow."""
    now = [1000.0]
    store = store_at(address, clock=lambda: now[0])
    store.open()
    store.commit(
        [Submit("r", "flow", "[]", "t", "00"), Submit("new", "flow", "[]", "u", "00", delay=0.0)]
    )
    store.commit(
        [
            RegisterWorker("w", "h", 1, 30.0, ("default",), ("flow",), 5),
            Claim("w", "t1", ids=("r",)),
        ]
    )
    return store, now


def test_run_under_way_in_a_living_worker_is_nobodys_fault(tmp_path):
    store, now = living(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        now[0] += 20
        assert alarms(check(store, Scope(since=0.0, objective=5))) == {}


def test_run_that_could_go_on_and_does_not_is_found_if_a_living_worker_knows_it(tmp_path):
    store, now = living(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        row = store.run("r")
        store.commit([Release(row.pk, row.fence, "its worker drains")])
        now[0] += 20
        found = alarms(check(store, Scope(since=0.0, objective=5)))["ended"]
        assert found == [
            "r (queued) has been due for 20 s, although live workers know its workflow: its worker drains"
        ]
        assert alarms(check(store, Scope(since=0.0, objective=25))) == {}
        now[0] += 100
        verdict = check(store, Scope(since=0.0, objective=5))
        assert alarms(verdict) == {
            "recovery": [
                "r lost its worker 120 s ago and has not continued: no live worker claims flow from queue default"
            ]
        }, "nobody lives"


def test_run_that_only_waited_and_that_nobody_takes_is_not_known(tmp_path):
    store, now = living(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        row = store.run("r")
        store.commit([Release(row.pk, row.fence, "it sleeps", waiting=True, due=now[0] + 1)])
        now[0] += 100
        verdict = check(store, Scope(since=0.0, objective=5))
        assert alarms(verdict) == {} and "no live worker claims them" in verdict["ended"].unknown[0]


def test_run_that_waits_for_a_queue_at_its_limit_or_for_empty_hands_is_nobodys_fault(tmp_path):
    store, now = living(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        row = store.run("r")
        store.commit(
            [
                Release(row.pk, row.fence, "its worker drains"),
                Claim("w", "t2", ids=("new",)),
                SetQueueLimits("default", None, 1),
            ]
        )
        now[0] += 20
        verdict = check(store, Scope(since=0.0, objective=5))
        assert alarms(verdict) == {} and verdict["ended"].facts["waiting_for_a_slot"] == 1
        store.commit([SetQueueLimits("default", None, 2)])
        assert list(alarms(check(store, Scope(since=0.0, objective=5)))) == ["ended"]
        with closing(sqlite3.connect(tmp_path / "o.db", isolation_level=None)) as db:
            db.execute("UPDATE runs SET deaths_in_a_row = 1 WHERE id = 'r'")
            assert list(alarms(check(store, Scope(since=0.0, objective=5)))) == [
                "ended"
            ]  # anybody may take it
            db.execute("UPDATE runs SET deaths_in_a_row = 2 WHERE id = 'r'")
        verdict = check(store, Scope(since=0.0, objective=5))
        assert alarms(verdict) == {} and verdict["ended"].facts["suspects_waiting"] == 1


def test_run_in_the_hands_of_a_worker_that_is_long_dead_is_found(tmp_path):
    store, now = living(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        now[0] += 300
        (found,) = alarms(check(store, Scope(since=0.0, objective=5)))["ended"]
        assert found.startswith("r is held by worker w, whose lease expired"), (
            "though nobody could sweep it"
        )
        store.commit([RegisterWorker("x", "h", 2, 30.0, ("default",), ("flow",), 5)])
        (found,) = alarms(check(store, Scope(since=0.0, objective=5)))["ended"]
        assert found.startswith("r is held by worker w, whose lease expired")
        for _ in range(8):  # signs of life, for as long as a lease
            now[0] += 10
            store.commit([RegisterWorker("x", "h", 2, 30.0, ("default",), ("flow",), 5), Sweep()])
        assert store.run("r").status == "queued"
        assert "held by" not in str(alarms(check(store, Scope(since=0.0, objective=5))))


def test_run_in_the_hands_of_nobody_is_found(tmp_path):
    store, _ = living(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        with closing(sqlite3.connect(tmp_path / "o.db", isolation_level=None)) as db:
            db.execute("DELETE FROM workers")
        assert alarms(check(store, Scope(since=0.0))) == {
            "ended": ["r is held by worker w, which is not registered"]
        }


def test_drain_that_was_cut_short_is_found(tmp_path):
    store, now = living(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        store.commit(
            [Drain("w", "SIGTERM", keep=(store.run("r").fence,)), RegisterWorker("x", "h", 2, 30.0)]
        )
        assert alarms(check(store, Scope(since=0.0))) == {}, "it goes on"
        for _ in range(12):
            now[0] += 10
            store.commit([RegisterWorker("x", "h", 2, 30.0), Sweep()])
        found = alarms(check(store, Scope(since=0.0, objective=1000)))
        assert list(found) == ["drains"] and found["drains"][0].startswith(
            "worker w on h exited before its drain ended"
        )
        assert alarms(check(store, Scope(since=now[0] + 1, objective=1000))) == {}
