"""Who takes part in the durable steps, on what, and how many runs at once."""

from __future__ import annotations

from typing import NamedTuple

from bench.contest.contenders import DBOS, LANGGRAPH, OUTLAST, RAW, Contender, Store


class Shape(NamedTuple):
    runs: int
    steps: int

    def __str__(self) -> str:
        return "1 run" if self.runs == 1 else f"{self.runs:,} runs"


LONE, HUNDRED = Shape(1, 200), Shape(100, 20)
SHAPES = (LONE, Shape(10, 50), HUNDRED, Shape(1_000, 5))


class Case(NamedTuple):
    """A contender on a store. `name` and `place` are what the tables call them."""

    contender: Contender
    store: Store
    name: str
    place: str
    variant: str = ""
    fsync: str = ""
    """Of Redis: its `appendfsync`."""
    runs_min: int = 1

    @property
    def key(self) -> str:
        return f"{self.name} on {self.place}"


PLACES: dict[Store, str] = {"sqlite": "SQLite", "postgres": "Postgres", "redis": "Redis"}
CASES = (
    Case(OUTLAST, "sqlite", "Outlast", "SQLite"),
    Case(RAW, "sqlite", "raw", "SQLite"),
    Case(DBOS, "sqlite", "DBOS", "SQLite"),
    Case(LANGGRAPH, "sqlite", "LangGraph", "SQLite"),
    Case(OUTLAST, "postgres", "Outlast", "Postgres"),
    Case(RAW, "postgres", "raw", "Postgres", "1"),
    Case(RAW, "postgres", "raw, 20 connections", "Postgres", "20", runs_min=2),
    Case(DBOS, "postgres", "DBOS", "Postgres"),
    Case(LANGGRAPH, "postgres", "LangGraph", "Postgres"),
    Case(OUTLAST, "redis", "Outlast", "Redis, fsync always", fsync="always"),
    Case(OUTLAST, "redis", "Outlast", "Redis, fsync every second", fsync="everysec"),
)
VARIANTS = {
    ("DBOS", "SQLite"): ("async", "threads", "plain"),
    ("DBOS", "Postgres"): ("async", "threads", "plain"),
    ("LangGraph", "SQLite"): ("async", "threads"),
    ("LangGraph", "Postgres"): ("async", "threads"),
}
"""The configurations of a peer that are tried before the rounds."""
