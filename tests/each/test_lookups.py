"""Many items: nothing is read at the start, every read is bounded, and only results are kept in memory.

OUTLAST_TEST_ITEMS=1000000 is the full form.
"""

import asyncio
import os
import sqlite3
import tracemalloc
from contextlib import closing

import pytest

from outlast.store.sqlite.store import SQLiteStore
from outlast.testing import App

ITEMS = int(os.environ.get("OUTLAST_TEST_ITEMS", "20_000"))
NOT_DONE = 10
READ_MAX = 1_000


class Counted:
    """A store that counts its reads."""

    def __init__(self, store):
        self._store = store
        self.reads: list[int] = []
        self.journals = 0

    def done(self, run, keys):
        assert len(keys) <= READ_MAX
        found = self._store.done(run, keys)
        self.reads.append(len(found))
        return found

    def journal(self, *args, **options):
        self.journals += 1
        return self._store.journal(*args, **options)

    def __getattr__(self, name):
        return getattr(self._store, name)


def items():
    return (f"item-{number}" for number in range(ITEMS))


@pytest.fixture
def prepared(tmp_path):
    """Prepare stores in which all items but the last few are done. A million commits would take too long."""

    def prepare(form):
        store = SQLiteStore(tmp_path / f"{form}.db", synchronous="normal")
        app = App(store)

        async def first(app):
            if form == "each":
                async for _ in app.each(["first"], id="job"):
                    pass
            else:
                await app.map(len, ["first"], id="job")

        app.do(first)
        pk, last = store.run("job").pk, store.last_seq(store.run("job").pk)
        value = None if form == "each" else "7"
        with closing(sqlite3.connect(tmp_path / f"{form}.db", isolation_level=None)) as db:
            db.execute("BEGIN")
            db.executemany(
                "INSERT INTO entries (run, seq, fence, kind, key, at, value) VALUES (?, ?, -1, 'done', ?, 0, ?)",
                ((pk, last + 1 + n, f"item-{n}", value) for n in range(ITEMS - NOT_DONE)),
            )
            db.execute("COMMIT")
        counted = Counted(store)
        return App(counted), counted, store

    opened = []
    yield lambda form: opened.append(made := prepare(form)) or made
    for *_, store in opened:
        store.close()


def test_done_items_are_skipped_in_bounded_reads_and_bounded_memory(prepared):
    app, counted, _ = prepared("each")

    async def main(app):
        return [item async for item in app.each(items(), id="job")]

    tracemalloc.start()
    try:
        seen = app.do(main)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == [f"item-{number}" for number in range(ITEMS - NOT_DONE, ITEMS)]
    assert max(counted.reads) == READ_MAX
    assert len(counted.reads) < ITEMS / READ_MAX + 40
    assert counted.reads[:4] == [1, 2, 4, 8], "nothing is read ahead before something was done"
    assert counted.journals == 0
    assert peak < 20e6


def test_map_reads_results_in_bounded_reads(prepared):
    app, counted, _ = prepared("map")

    async def main(app):
        return await app.map(len, items(), id="job")

    results = app.do(main)
    assert len(results) == ITEMS
    assert results["item-3"] == 7
    assert results[f"item-{ITEMS - 1}"] == len(f"item-{ITEMS - 1}")
    assert max(counted.reads) == READ_MAX
    assert counted.journals == 0


def test_new_items_are_looked_up_one_by_one():
    counted = Counted(SQLiteStore(None))
    counted.open()

    async def main(app):
        async for _ in app.each(range(50), id="job"):
            pass

    App(counted).do(main)
    assert counted.reads == [0] * 50
    counted.close()


def test_stream_is_not_delayed_by_a_batch():
    """Batches have grown as everything before is done, yet each new item is yielded when it comes."""
    app = App()
    seen = []

    async def stream():
        for number in range(200):
            yield f"old-{number}"
        for number in range(3):
            await asyncio.sleep(10)
            yield f"new-{number}"

    async def main(app):
        async for _ in app.each([f"old-{number}" for number in range(200)], id="job"):
            pass
        start = app.clock()
        async for item in app.each(stream(), id="job"):
            seen.append((item, app.clock() - start))

    app.do(main)
    assert seen == [("new-0", 10.0), ("new-1", 20.0), ("new-2", 30.0)]
