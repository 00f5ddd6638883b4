"""Compare `OutlastSaver` with the savers of LangGraph: milliseconds per superstep.

A graph with one trivial node loops. Each superstep saves what the node wrote, and a checkpoint,
with `durability="sync"`. The savers take turns in one process, on the same disk and the same
Postgres, and each thread is new.

The savers of LangGraph must be installed: `make integrations` puts them into its environments.

    .venv-integrations/langgraph-1.2.22/bin/python -m bench.savers

`make bench` calls it with `--json`, for docs/benchmarks-adapters.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import operator
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from outlast import Outlast
from outlast.integrations.langgraph import OutlastSaver
from outlast.testing.servers import postgres_server, redis_server

SUPERSTEPS = 30
PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres")

Laps = dict[str, list[tuple[float, float]]]
"""The milliseconds per superstep of each round, elapsed and of CPU, by saver."""


class State(TypedDict):
    number: int
    log: Annotated[list[dict[str, str]], operator.add]


async def node(state: State) -> dict[str, Any]:
    return {"number": state["number"] + 1, "log": [{"role": "tool", "content": "x" * 300}]}


def graph(saver: BaseCheckpointSaver) -> Any:
    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_conditional_edges(
        "node", lambda state: "node" if state["number"] < SUPERSTEPS else END, ["node", END]
    )
    return builder.compile(checkpointer=saver)


async def lap(saver: BaseCheckpointSaver, threads: int, number: int) -> tuple[float, float]:
    """Return the milliseconds per superstep: elapsed, and of this process' CPU."""
    compiled = graph(saver)
    gc.collect()
    started, worked = time.perf_counter(), time.process_time()
    await asyncio.gather(
        *(
            compiled.ainvoke(
                {"number": 0, "log": []},
                {"configurable": {"thread_id": f"{number}-{n}"}, "recursion_limit": 100},
                durability="sync",
            )
            for n in range(threads)
        )
    )
    supersteps = SUPERSTEPS * threads
    return (
        1000 * (time.perf_counter() - started) / supersteps,
        1000 * (time.process_time() - worked) / supersteps,
    )


async def measure(rounds: int, threads: int, postgres: str, redis: str) -> Laps:
    """Let the savers take turns, and return what each took."""
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())

        async def ours(address: str) -> OutlastSaver:
            return OutlastSaver(await stack.enter_async_context(Outlast(address)))

        theirs = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(postgres))
        await theirs.setup()
        savers = {
            "memory: LangGraph": InMemorySaver(),
            "SQLite: Outlast": await ours(f"sqlite:///{Path(folder) / 'outlast.db'}"),
            "SQLite: LangGraph": await stack.enter_async_context(
                AsyncSqliteSaver.from_conn_string(str(Path(folder) / "langgraph.db"))
            ),
            "Postgres: Outlast": await ours(postgres),
            "Postgres: LangGraph": theirs,
            "Redis: Outlast": await ours(redis),
        }
        laps: Laps = {name: [] for name in savers}
        for number, name in ((n, name) for n in range(rounds + 1) for name in savers):
            laps[name].append(await lap(savers[name], threads, number))
    # The first round opens connections and prepares statements.
    return {name: times[1:] for name, times in laps.items()}


def report(threads: int, laps: Laps) -> None:
    rounds = len(next(iter(laps.values())))
    print(f"{threads} thread(s) at once, {rounds} rounds of {SUPERSTEPS} supersteps:")
    for name, times in laps.items():
        elapsed, worked = zip(*times, strict=True)
        print(
            f"  {name:20} {statistics.median(elapsed):6.2f} ms per superstep "
            f"(fastest {min(elapsed):.2f}), CPU {statistics.median(worked):.2f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 10])
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")
    given = parser.parse_args()
    measured = []
    appending = ("--appendonly", "yes", "--appendfsync", "everysec")
    with (
        postgres_server(durable=True) as postgres,
        redis_server(None, *appending) as redis,
    ):
        for position, threads in zip(count(), given.threads):
            laps = asyncio.run(
                measure(given.rounds, threads, postgres.url, f"{redis.url}?db={position}")
            )
            measured.append({
                "threads": threads,
                "rounds": given.rounds,
                "supersteps": SUPERSTEPS,
                "laps": laps,
            })  # fmt: skip
            if not given.json:
                report(threads, laps)
    if given.json:
        versions = {name: version(name) for name in PACKAGES}
        print(json.dumps({"versions": versions, "threads": measured}))


if __name__ == "__main__":
    main()
