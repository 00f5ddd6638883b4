"""How long does a page of the web UI take with many runs, and with few?

    python -m bench.own.pages
    python -m bench.own.pages --runs 1000000

It prints milliseconds for a request of each page on SQLite, and their ratio to the same page of a
store with a hundred runs. The requests come in process, so there is no network in them. A ratio
near 1 means that the page costs what it shows, and not what the store holds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import httpx

from outlast import Outlast
from outlast.http import ui
from outlast.store.commands import Claim, Record, RegisterWorker, Submit, SubmitMany
from outlast.store.sqlite.store import SQLiteStore

FEW = 100
TOKEN = "operator-token-0123456789"
BATCH = 1_000
ENTRIES = 10_000
QUEUES = ("default", "mail", "reports", "imports")
PAGES = {
    "home": "/",
    "runs": "/runs",
    "runs, parked": "/runs?status=parked",
    "runs, none match": "/runs?workflow=other",
    "run": "/runs/r1",
    f"run, {ENTRIES:,} entries": "/runs/long",
    "its last page": f"/runs/long?after={ENTRIES - 20}",
    "fleet": "/fleet",
}
MIXES = {"all done": 1.0, "half queued": 0.5, "all queued": 0.0}


def filled(path: Path, runs: int, done: float) -> None:
    """Make a store with that many runs, this share of them done, spread over a day."""
    store = SQLiteStore(path)
    store.open()
    for first in range(0, runs, BATCH):
        numbers = range(first, min(runs, first + BATCH))
        store.commit([SubmitMany([_run(f"r{number}", number) for number in numbers])])
    share, span = int(runs * done), 86_400 / runs
    with _written(store) as db:
        db.execute(
            "UPDATE runs SET created = created - 86400 + pk * ?, due = created - 86400 + pk * ?",
            (span, span),
        )
        db.execute(
            "UPDATE runs SET started = created, ready = 0, status = iif(pk % 997 = 0, 'parked', iif(pk % 503 = 0, 'failed', 'done')),"
            " ended = iif(pk % 997 = 0, NULL, created + 1) WHERE pk <= ?",
            (share,),
        )
        db.execute(
            "UPDATE queues SET queued = (SELECT count(*) FROM runs"
            " WHERE queue = name AND status = 'queued')"
        )
    store.commit([RegisterWorker("w", "host", 1, 1e6, ("long",), ("flow",), 4)])
    store.commit([_run("long", 0)._replace(queue="long")])
    (rows,) = store.commit([Claim("w", "c", (), ("long",), ("flow",))])
    for first in range(1, ENTRIES, BATCH):
        store.commit(
            [
                Record(
                    rows[0].pk, seq, rows[0].fence, "step", f"step#{seq}", rows[0].created + seq,
                    args='{"part":1}', value='"found"', seconds=0.5, attempt=1,
                )
                for seq in range(first, first + BATCH)
            ]
        )  # fmt: skip
    store.close()


def _run(id: str, number: int) -> Submit:
    args = json.dumps({"topic": "x" * 200})
    return Submit(id, "flow", args, f"t{id}", "00" * 16, queue=QUEUES[number % len(QUEUES)])


@contextmanager
def _written(store: SQLiteStore):
    yield store._db


async def measured(path: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """Return for each page the milliseconds of its first request, and the median of the others."""
    app = Outlast(f"sqlite:///{path}", worker=False)
    web = ui(app, tokens=[f"olga:operator:{TOKEN}"])
    transport = httpx.ASGITransport(web)
    origin = {"origin": "http://ui"}
    async with (
        app,
        httpx.AsyncClient(transport=transport, base_url="http://ui", timeout=60) as site,
    ):
        await site.post("/login", data={"token": TOKEN}, headers=origin)
        await site.get("/sessions")
        found = {}
        for name, address in PAGES.items():
            took = []
            for _ in range(rounds + 1):
                began = time.perf_counter()
                answer = await site.get(address)
                took.append((time.perf_counter() - began) * 1000)
                assert answer.status_code == 200, answer.text
            found[name] = took[0], statistics.median(took[1:])
        return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.own.pages")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outlast-pages-") as folder:
        few = Path(folder) / "few.db"
        filled(few, FEW, 1.0)
        base = asyncio.run(measured(few, given.rounds))
        for mix, done in MIXES.items():
            path = Path(folder) / f"{mix.replace(' ', '-')}.db"
            filled(path, given.runs, done)
            found = asyncio.run(measured(path, given.rounds))
            print(f"\n{given.runs:,} runs, {mix}")
            print(f"{'page':<22} {'first ms':>9} {'then ms':>9} {'to ' + str(FEW) + ' runs':>12}")
            for name, (first, then) in found.items():
                print(f"{name:<22} {first:>9.1f} {then:>9.1f} {then / base[name][1]:>11.1f}x")


if __name__ == "__main__":
    main()
