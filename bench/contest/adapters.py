"""The section on agent frameworks: the CPU time of a turn, and LangGraph's savers beside ours.

`bench/adapters.py` and `bench/savers.py` measure. The savers need those of LangGraph, so they are
measured in an environment of `make integrations`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.contest.environments import REPOSITORY
from bench.contest.section import Found, Section
from bench.contest.tables import NONE, Goal, Outcome, goals_table, spread_words
from bench.markdown import figure, table
from bench.spread import Spread

CPU_MS_MAX = 1.0
"""The goal: how much CPU time a turn may cost beyond the framework's own."""
STORES = ("SQLite", "Postgres")

HEAD = """# Agent frameworks

What does it cost to make an agent of a framework durable, and how fast is `OutlastSaver` beside LangGraph's own savers?

The machine is shared and noisy. **Trust the ratios, not the absolute figures.**

## CPU time of a turn

An agent with a scripted model takes many turns. A turn is one model call and one call of a trivial tool, so durably it has two steps. The agent executes plainly and durably in turn, in one process, with the store in memory. The table has the quietest round of each.
"""

SAVERS = """
## Checkpoints of LangGraph

A graph with one trivial node loops with `durability="sync"`. Each superstep saves what the node wrote, and a checkpoint. The savers take turns in one process, on the same disk and the same servers, and every thread is new. The ratio is LangGraph's time divided by Outlast's in the same round: above 1, Outlast is faster. The table has the median of the rounds and their range.

LangGraph has no saver for plain Redis, so there is nothing to compare with.
"""

WHY = """
With `OutlastSaver`, a superstep is one durable commit, and LangGraph's savers make two. A single thread waits for its commit. That checks more than theirs, such as the owner and the limits of the thread, so where the disk is fast, one commit of Outlast takes about as long as two of LangGraph.
Outlast commits on the event loop while commits take less than a millisecond, and otherwise in the writer's thread. On a busy machine, each switch of threads waits for a core.
Threads that run at once share commits with Outlast. LangGraph's savers make one after another.
"""


def measure(home: Path, rounds: int, tell: Callable[[str], None]) -> Found:  # noqa: ARG001
    """Measure the adapters here, and the savers in the environment of the newest LangGraph."""
    tell("adapters: CPU time of a turn")
    turns = _ask(sys.executable, "bench.adapters", home)
    tell("adapters: an environment with LangGraph's savers")
    script = REPOSITORY / "scripts/integrations.py"
    made = subprocess.run(
        [sys.executable, script, "--python", "langgraph"],
        cwd=REPOSITORY,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    tell("adapters: savers of LangGraph")
    return {"turns": turns, "savers": _ask(made.stdout.splitlines()[-1], "bench.savers", home)}


def _ask(python: str, module: str, home: Path) -> Any:
    env = {**os.environ, "TMPDIR": str(home)}
    command = [python, "-m", module, "--json"]
    answer = subprocess.run(
        command, cwd=REPOSITORY, env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(answer.stdout)


# -- the report


def tables(found: Found) -> str:
    savers = found["savers"]
    parts = [HEAD, _turns_table(found["turns"]), SAVERS]
    for one in savers["threads"]:
        count = one["threads"]
        said = "One thread" if count == 1 else f"{count} threads at once"
        parts.append(f"{said}, {one['rounds']} rounds of {one['supersteps']} supersteps:\n")
        parts.append(_savers_table(one["laps"]) + "\n")
    versions = ", ".join(f"{name} {number}" for name, number in savers["versions"].items())
    parts += [WHY, "## Goals\n", goals_table(_goals(found)), f"Versions: {versions}."]
    return "\n".join(parts) + "\n"


def _turns_table(turns: dict[str, dict[str, Any]]) -> str:
    rows = [
        [
            f"{name} {one['version']}",
            figure(one["plain_ms"]),
            figure(one["durable_ms"]),
            figure(_added(one)),
        ]
        for name, one in turns.items()
    ]
    return table(["framework", "plain, ms", "durable, ms", "added by Outlast, ms"], rows)


def _savers_table(laps: dict[str, list[list[float]]]) -> str:
    rows = []
    for name, rounds in laps.items():
        elapsed = Spread.of([one[0] for one in rounds])
        worked = Spread.of([one[1] for one in rounds])
        ratios = _ratios(laps, name.partition(":")[0]) if name.endswith("Outlast") else []
        rows.append(
            [
                name,
                figure(elapsed.low),
                figure(elapsed.median),
                figure(worked.median),
                spread_words(Spread.of(ratios), "x") if ratios else NONE,
            ]
        )
    return table(
        ["store: saver", "fastest, ms per superstep", "median, ms", "CPU, ms", "ratio"], rows
    )


def _ratios(laps: dict[str, list[list[float]]], store: str) -> list[float]:
    """Return LangGraph's time divided by Outlast's, round by round."""
    ours, theirs = laps[f"{store}: Outlast"], laps.get(f"{store}: LangGraph", [])
    return [their[0] / our[0] for our, their in zip(ours, theirs, strict=False)]


def _added(turn: dict[str, float]) -> float:
    return turn["durable_ms"] - turn["plain_ms"]


def _goals(found: Found) -> list[Goal]:
    goals = []
    for one in found["savers"]["threads"]:
        count = one["threads"]
        threads = "1 thread" if count == 1 else f"{count} threads"
        for store in STORES:
            name = f"{threads} on {store}: LangGraph / Outlast, ms per superstep"
            goals.append(Goal(name, 1, _ratios(one["laps"], store)))
    for name, turn in found["turns"].items():
        title = f"{name}: {CPU_MS_MAX:g} ms of CPU / what Outlast adds to a turn"
        goals.append(Goal(title, 1, [CPU_MS_MAX / _added(turn)]))
    return goals


def outcomes(found: Found) -> list[Outcome]:
    return [goal.outcome for goal in _goals(found)]


def plots(found: Found) -> dict[str, str]:  # noqa: ARG001
    return {}


ADAPTERS = Section(
    "adapters",
    measure,
    tables,
    plots,
    "Agent frameworks",
    "What do durable agents of a framework cost, and how fast is `OutlastSaver`?",
    outcomes,
    once=True,
)
