"""`outlast chaos verify`: it changes nothing, disturbs nobody, and says how much it has looked at."""

import asyncio
import json
import sqlite3
import tracemalloc
from contextlib import closing

import pytest

from outlast import Outlast, step, workflow
from outlast.cli import main
from outlast.store.address import store_at
from outlast.store.rows import Entry, RunQuery
from outlast.store.sqlite.statements import runs_statement
from outlast.tools.chaos import checks
from outlast.tools.chaos.checks import check
from outlast.tools.chaos.findings import Scope
from support.stores import a_place, peek
from support.waiting import WAIT_SECONDS


@step
async def think(number: int) -> int:
    await asyncio.sleep(0.001)
    return number


@workflow
async def flow(number: int) -> int:
    for part in range(3):
        await think(part)
    return number


def fill(address: str, count: int = 5) -> None:
    async def fill() -> None:
        async with Outlast(address, worker=True, ramp=0, workflows=[flow], concurrency=50) as app:
            runs = await app.submit_many([flow(number) for number in range(count)])
            await asyncio.gather(*(run.result(WAIT_SECONDS) for run in runs))

    asyncio.run(fill())


def verify(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["chaos", "verify", "--since", "1h", *words])
    return int(ended.value.code or 0)


@pytest.fixture(params=["sqlite", "postgres", "redis", "file"])
def any_place(request, tmp_path):
    with a_place(request, request.param, tmp_path) as address:
        yield address


def contents(address: str) -> object:
    """Return every row of a store, or the contents of its files: opening them would change their log."""
    if not address.startswith("file:"):
        with closing(peek(address)) as db:
            return list(db.iterdump())
    store = store_at(address)
    store.open()
    with closing(store):
        return list(store._db.iterdump())


def test_verify_does_not_change_the_store(any_place, capsys):
    fill(any_place)
    before = contents(any_place)
    assert verify("--thorough", "--json", "--store", any_place) == 0
    assert contents(any_place) == before
    said = json.loads(capsys.readouterr().out)
    assert said["looked_at"]["runs"] == 5 and said["looked_at"]["entries"] == 15
    assert said["outcome"] == "not known" and "since" in said


def test_violation_is_reported_with_exit_code_1(tmp_path, capsys):
    address = f"sqlite:///{tmp_path}/o.db"
    fill(address)
    with closing(sqlite3.connect(tmp_path / "o.db", isolation_level=None)) as db:
        db.execute(
            "UPDATE runs SET status = 'parked', ended = NULL, reason = 'diverged' WHERE pk = 1"
        )
    assert verify("--store", address) == 1
    said = capsys.readouterr().out
    assert (
        "violated   dead letters and parked" in said
        and "is parked: diverged" in said
        and "verdict: violated" in said
    )


def test_store_of_an_older_schema_is_not_migrated(tmp_path, monkeypatch, capsys):
    address = f"sqlite:///{tmp_path}/o.db"
    fill(address, 1)
    monkeypatch.setattr("outlast.store.sqlite.store.SQLiteStore.versions", lambda _: (1, 2))
    assert verify("--store", address) == 1
    assert "outlast migrate" in capsys.readouterr().err


def test_missing_store_is_not_created(tmp_path, capsys):
    assert verify("--store", f"sqlite:///{tmp_path}/none.db") == 1
    assert not (tmp_path / "none.db").exists()


def test_old_runs_and_undisturbed_runs_are_skipped(tmp_path):
    address = f"sqlite:///{tmp_path}/o.db"
    fill(address)
    store = store_at(address)
    store.open()
    with closing(store):
        assert check(store, Scope(since=0.0)).looked_at["skipped"] == 5
        later = check(store, Scope(since=store.now() + 1, thorough=True)).looked_at
        assert (later["runs"], later["skipped"]) == (0, 0)


def test_page_of_runs_begins_where_the_last_one_ended(tmp_path):
    """And does not look at all that is before it: a million runs are five thousand pages."""
    address = f"sqlite:///{tmp_path}/o.db"
    fill(address, 1)
    query = RunQuery(ended_after=0.0, before_pk=7)
    with closing(peek(address)) as db:
        plan = [
            row[3]
            for row in db.execute(
                f"EXPLAIN QUERY PLAN {runs_statement(query)}",
                query._asdict() | {"statuses": None, "delayed": False, "now": 0.0},
            )
        ]
    assert "rowid<?" in plan[0], plan


def test_working_workers_raise_no_alarm(tmp_path):
    """Looked at again and again, while hundreds of runs are claimed, recorded and settled."""
    address = f"sqlite:///{tmp_path}/o.db"

    async def live() -> list:
        verdicts = []
        async with Outlast(address, worker=True, ramp=0, workflows=[flow], concurrency=20) as app:
            runs = await app.submit_many([flow(number) for number in range(150)])
            ends = asyncio.gather(*(run.result(WAIT_SECONDS) for run in runs))
            while not ends.done():
                verdicts.append(await asyncio.to_thread(look, address))
            await ends
        return verdicts

    def look(address):
        store = store_at(address)
        store.open()
        with closing(store):
            return check(store, Scope(since=0.0, objective=0.0, thorough=True))

    verdicts = asyncio.run(live())
    assert [one.evidence for verdict in verdicts for one in verdict.checks if one.violations] == []
    assert any(0 < verdict["ended"].facts["statuses"].get("done", 0) < 150 for verdict in verdicts)


def test_long_journal_is_read_page_by_page():
    """In memory no more than a page and what the fold keeps."""

    class Long:
        def __init__(self) -> None:
            self.pages: list[int] = []

        def journal(self, run: int, after: int, limit: int) -> list[Entry]:
            self.pages.append(limit)
            last = min(after + limit, 5_000)
            return [
                Entry(seq, "done", f"item {seq}", 1.0, value="x" * 10_000, fence=1)
                for seq in range(after + 1, last + 1)
            ]

    class Row:
        pk = 1

    store = Long()
    tracemalloc.start()
    audit = checks._audit(store, Row)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert audit.count == 5_000 and set(store.pages) == {checks.PAGE}
    assert peak < 20_000_000, "fifty megabytes were read"
