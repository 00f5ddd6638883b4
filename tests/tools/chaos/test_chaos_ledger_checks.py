"""Checks that compare the journals of a store with a ledger of actions."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from check_tools import OF, alarms, judged, tamper

from outlast import Outlast
from outlast.tools.chaos.ledger_summary import LedgerSummary


def ledger_of(path: Path, *, without: str = "", twice: str = "") -> LedgerSummary:
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


def ledger_alarms(path, summary):
    return alarms(judged(path, summary=summary))


def test_agreeing_ledger_raises_no_alarm(copy):
    assert ledger_alarms(copy, ledger_of(copy)) == {}


def test_action_done_twice_is_found(copy):
    found = ledger_alarms(copy, ledger_of(copy, twice="good pay#1"))
    assert "of good was done once more" in found["no action twice"][0]


def test_action_missing_from_the_ledger_is_found(copy):
    found = ledger_alarms(copy, ledger_of(copy, without="good pay#1"))
    assert (
        "good: pay#1 happened according to the journal: True, to the ledger: False"
        in found["none lost"]
    )


def test_action_missing_from_the_journal_is_found(copy):
    summary = ledger_of(copy)
    summary.add({"n": 0, "what": "act", "key": "unheard of", "run": "good", "fence": 10**6})
    assert (
        "good: the ledger has unheard of, but no entry of the run intended it"
        in ledger_alarms(copy, summary)["none lost"]
    )


def test_action_not_undone_is_found(copy):
    found = ledger_alarms(copy, ledger_of(copy, without="endless undo:pay#1"))
    assert "endless: the ledger has pay#1 1 times instead of 0" in found["compensated"]


def test_action_repeated_with_another_key_is_found(copy):
    """Each key was acted on once, and all the same it happened twice."""
    before = ledger_of(copy)
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
    ) as db:  # the first intent, whose outcome was unknown
        db.execute("UPDATE entries SET seq = seq + 1000 WHERE " + OF, ("good",))
        db.execute("UPDATE entries SET seq = seq - 999 WHERE " + OF, ("good",))
        db.execute(
            "INSERT INTO entries (run, seq, fence, kind, key, at, args, value) SELECT run, 1, fence, kind, key, at, args, "
            f"json_set(value, '$.key', '{key}') FROM entries WHERE kind = 'intent' AND key = 'pay#1' AND {OF}",
            ("good",),
        )
    before.add({"n": 0, "what": "act", "key": "another", "run": "good", "fence": 10**6})
    assert ledger_alarms(copy, before) == {
        "no action twice": [
            f"good: the ledger has {key}, but its call was intended again under another key"
        ]
    }


def test_done_item_without_a_handler_call_is_found(tmp_path):
    address = f"sqlite:///{tmp_path}/o.db"

    async def handled() -> None:
        async with Outlast(address, worker=False, signals=0) as app:
            queue = app.queue("mails")
            await queue.put("x", id="one")
            item = await queue.claim(wait=10)
            await item.ack()

    asyncio.run(handled())
    assert ledger_alarms(address, LedgerSummary()) == {
        "none lost": ["mails/one is done, but the ledger received no request of it"]
    }
    summary = LedgerSummary(
        [{"n": 0, "what": "act", "key": "item mails/one", "run": "mails/one", "fence": 1}]
    )
    assert ledger_alarms(address, summary) == {}


def test_result_of_a_step_that_never_started_is_found(copy):
    summary = ledger_of(copy)
    summary.add(
        {"n": 0, "what": "began", "key": "think#1", "run": "good", "fence": 1, "attempt": 1}
    )
    found = ledger_alarms(copy, summary)["none lost"]
    assert found == ["mixed: think#1 has a result, but the ledger never saw its body start"]


def test_recovery_is_unknown_if_no_loss_can_be_timed(copy):
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


def test_step_started_after_its_recorded_result_is_found(copy):
    summary = ledger_of(copy)
    with closing(sqlite3.connect(copy)) as db:
        ((fence,),) = db.execute(
            f"SELECT fence FROM entries WHERE key = 'think#1' AND {OF}", ("good",)
        ).fetchall()
    summary.add(
        {"n": 0, "what": "began", "key": "think#1", "run": "good", "fence": fence, "attempt": 1}
    )
    assert "redone" not in ledger_alarms(copy, summary)
    summary.add(
        {"n": 0, "what": "began", "key": "think#1", "run": "good", "fence": fence + 1, "attempt": 1}
    )
    assert (
        f"think#1 started under fence {fence + 1}, after its result was recorded under {fence}"
        in ledger_alarms(copy, summary)["redone"][0]
    )
    again = ledger_of(copy)
    for _ in range(2):
        again.add(
            {"n": 0, "what": "began", "key": "think#1", "run": "good", "fence": fence, "attempt": 1}
        )
    assert "started twice in one attempt of one life" in ledger_alarms(copy, again)["redone"][0]
