"""LangGraph: a graph whose one node is executed again and again, with `durability="sync"`: each step's checkpoint is written before the next begins.

Two ways to execute many runs (`--variant`): "async" (savers of asyncio) and "threads" (20 threads). A saver has one lock for all that use it, so
there are several, as many as is of use, over one pool of connections; a lone run has one.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import Any, TypedDict

from common import (
    POSTGRES_SETTINGS,
    SQLITE_SETTINGS,
    Laps,
    Meter,
    drive,
)
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row

meter = Meter()

THREADS = 20
SQLITE_SAVERS, POSTGRES_SAVERS = 4, 20
CONNECTION: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
"""As its documentation says for connections of one's own."""
COUNT = "SELECT count(*) FROM checkpoints WHERE thread_id LIKE "


class State(TypedDict):
    x: int
    total: int
    steps: int


def _noop(state: State, config: RunnableConfig) -> dict[str, int]:
    meter.step(config["configurable"]["thread_id"])
    return {"x": state["x"] + 1, "total": state["total"] + state["x"]}


async def _noop_async(state: State, config: RunnableConfig) -> dict[str, int]:
    return _noop(state, config)


def _graph(node: Callable[..., Any], saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("noop", node)
    builder.add_edge(START, "noop")
    builder.add_conditional_edges(
        "noop", lambda state: "noop" if state["x"] < state["steps"] else END, ["noop", END]
    )
    return builder.compile(checkpointer=saver)


def _call(run: str, steps: int) -> dict[str, Any]:
    return {
        "input": {"x": 0, "total": 0, "steps": steps},
        "config": {"configurable": {"thread_id": run}, "recursion_limit": steps + 10},
        "durability": "sync",
    }


def steps(given: argparse.Namespace) -> dict[str, Any]:
    meter.server = given.server
    savers = _savers_count(given)
    if given.variant == "threads":
        laps = _in_threads(given, savers)
        how = f"{min(THREADS, given.runs)} threads, {savers} {_saver_name(given, '')}"
    else:
        laps = asyncio.run(_in_asyncio(given, savers))
        how = f"asyncio, {savers} {_saver_name(given, 'Async')}"
    return {**laps.found, **_counted(given.store, laps.last), "config": f'durability="sync", {how}'}


def _savers_count(given: argparse.Namespace) -> int:
    return min(given.runs, SQLITE_SAVERS if given.store.startswith("sqlite:") else POSTGRES_SAVERS)


def _saver_name(given: argparse.Namespace, prefix: str) -> str:
    if given.store.startswith("sqlite:"):
        return f"{prefix}SqliteSaver with a connection each (it sets WAL; synchronous is FULL by default)"
    return f"{prefix}PostgresSaver over one pool of as many connections"


# -- threads


def _in_threads(given: argparse.Namespace, count: int) -> Laps:
    with (
        _savers(given.store, count) as savers,
        ThreadPoolExecutor(min(THREADS, given.runs)) as pool,
    ):
        graphs = [_graph(_noop, saver) for saver in savers]

        def execute(name: str, runs: int, steps: int) -> None:
            def one(number: int) -> int:
                total: int = graphs[number % count].invoke(**_call(f"{name}-{number}", steps))[
                    "total"
                ]
                return total

            assert list(pool.map(one, range(runs))) == [sum(range(steps))] * runs

        laps = Laps(given, meter)
        for name, runs, steps in laps:
            execute(name, runs, steps)
        if given.store.startswith("sqlite:"):
            own = savers[0].conn
            laps.found["settings"] = {
                name: _told(own.execute(f"PRAGMA {name}")) for name in SQLITE_SETTINGS
            }
        return laps


@contextmanager
def _savers(store: str, count: int) -> Iterator[list[Any]]:
    with ExitStack() as stack:
        if store.startswith("sqlite:"):
            from langgraph.checkpoint.sqlite import SqliteSaver

            path = store.removeprefix("sqlite:///")
            savers = [stack.enter_context(SqliteSaver.from_conn_string(path)) for _ in range(count)]
            for saver in savers:
                saver.setup()
            yield savers
        else:
            from langgraph.checkpoint.postgres import PostgresSaver
            from psycopg_pool import ConnectionPool

            pool = stack.enter_context(
                ConnectionPool(store, min_size=count, max_size=count, kwargs=CONNECTION)
            )
            savers = [PostgresSaver(pool) for _ in range(count)]
            savers[0].setup()
            yield savers


# -- asyncio


async def _in_asyncio(given: argparse.Namespace, count: int) -> Laps:
    async with AsyncExitStack() as stack:
        savers = await _async_savers(given.store, count, stack)
        graphs = [_graph(_noop_async, saver) for saver in savers]

        async def execute(name: str, runs: int, steps: int) -> None:
            calls = [
                graphs[number % count].ainvoke(**_call(f"{name}-{number}", steps))
                for number in range(runs)
            ]
            assert [state["total"] for state in await asyncio.gather(*calls)] == [
                sum(range(steps))
            ] * runs

        laps = Laps(given, meter)
        for name, runs, steps in laps:
            await execute(name, runs, steps)
        if given.store.startswith("sqlite:"):
            own = savers[0].conn
            laps.found["settings"] = {
                name: str((await (await own.execute(f"PRAGMA {name}")).fetchone())[0])
                for name in SQLITE_SETTINGS
            }
        return laps


async def _async_savers(store: str, count: int, stack: AsyncExitStack) -> list[Any]:
    if store.startswith("sqlite:"):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        path = store.removeprefix("sqlite:///")
        savers = [
            await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
            for _ in range(count)
        ]
        for saver in savers:
            await saver.setup()
        return savers
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg_pool import AsyncConnectionPool

    pool = AsyncConnectionPool(store, min_size=count, max_size=count, kwargs=CONNECTION, open=False)
    await stack.enter_async_context(pool)
    pooled = [AsyncPostgresSaver(pool) for _ in range(count)]
    await pooled[0].setup()
    return pooled


# -- what the store says


def _counted(store: str, lap: str) -> dict[str, Any]:
    """A checkpoint a step, and two more a run: of its input, and before its first step."""
    if store.startswith("sqlite:"):
        with sqlite3.connect(store.removeprefix("sqlite:///")) as db:
            return {"recorded": db.execute(f"{COUNT} ?", (f"{lap}-%",)).fetchone()[0]}
    import psycopg

    with psycopg.connect(store, row_factory=dict_row) as db:
        (recorded,) = (db.execute(f"{COUNT} %s", (f"{lap}-%",)).fetchone() or {}).values()
        settings = {
            name: (db.execute(f"SHOW {name}").fetchone() or {})[name] for name in POSTGRES_SETTINGS
        }
    return {"recorded": recorded, "settings": settings}


def _told(cursor: sqlite3.Cursor) -> str:
    return str(cursor.fetchone()[0])


if __name__ == "__main__":
    drive({"steps": steps})
