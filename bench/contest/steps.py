"""Durable steps: runs whose steps do nothing, so that what is left is the cost of recording each of them before the next begins.

First every peer's configurations are tried once, alone and with 100 runs; the faster one of each store takes part in the rounds. Then the rounds: every
contender, store and number of runs, in an order that a seed shuffles, each on an empty database of a server at rest.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.contest.ask import Failed, ask
from bench.contest.contenders import DBOS, LANGGRAPH
from bench.contest.environments import python_of
from bench.contest.section import Found, Section
from bench.contest.servers import Stores, stores
from bench.contest.stepcases import CASES, HUNDRED, LONE, SHAPES, VARIANTS, Case, Shape
from bench.contest.stepspage import outcomes, plots, tables
from outlast.codec.percentiles import nearest_rank

SECONDS = 2.0
Tell = Callable[[str], None]
DURABLE = {
    "journal_mode": {"wal", "delete"},
    "synchronous": {"2", "3"},
    "fsync": {"on"},
    "synchronous_commit": {"on"},
    "appendonly": {"yes"},
    "appendfsync": {"always", "everysec"},
}


def measure(folder: Path, rounds: int, tell: Tell) -> Found:
    for case in CASES:
        python_of(case.contender, tell)  # no environment is made between two measurements
    with stores(_made(folder / "tried"), {"postgres", "redis"}) as opened:
        versions = opened.versions()
        tried = _try_variants(opened, tell)
    fastest = _fastest(tried)
    return {
        "seconds": SECONDS,
        "servers": versions,
        "packages": {peer.name: " ".join(peer.packages) for peer in (DBOS, LANGGRAPH)},
        "tried": tried,
        "rounds": [
            _round(_made(folder / f"round-{number}"), number, rounds, fastest, tell)
            for number in range(1, rounds + 1)
        ],
    }


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _try_variants(opened: Stores, tell: Tell) -> list[dict[str, Any]]:
    tried = []
    for case in CASES:
        for variant in VARIANTS.get((case.name, case.place), ()):
            for shape in (LONE, HUNDRED):
                tell(f"which configuration: {case.key}, {shape}, {variant}")
                tried.append(_one(case._replace(variant=variant), shape, opened, tell))
    return tried


def _fastest(tried: Sequence[dict[str, Any]]) -> dict[tuple[str, bool], str]:
    """The variant to take for a case and for many runs or a lone one: the faster of those that did not fail, else the first."""
    chosen: dict[tuple[str, bool], str] = {}
    for result in sorted(tried, key=lambda result: result.get("steps_per_second", 0.0)):
        chosen[result["case"], result["runs"] > 1] = result["variant"]
    return chosen


def _round(
    folder: Path, number: int, rounds: int, fastest: dict[tuple[str, bool], str], tell: Tell
) -> list[dict[str, Any]]:
    results = []
    with stores(folder, {"postgres", "redis"}) as opened:
        for shape in SHAPES:
            cases = [case for case in CASES if shape.runs >= case.runs_min]
            random.Random(f"{number} {shape}").shuffle(
                cases
            )  # the order changes from round to round, in the same way every time
            for case in cases:
                variant = fastest.get((case.key, shape.runs > 1), case.variant)
                tell(f"round {number} of {rounds}: {case.key}, {shape}")
                results.append(_one(case._replace(variant=variant), shape, opened, tell))
    return results


def _one(case: Case, shape: Shape, opened: Stores, tell: Tell) -> dict[str, Any]:
    """The figures, or what failed."""
    opened.clear()
    if case.fsync:
        opened.set_fsync(case.fsync)
    server = opened.server(case.store)
    result = {
        "case": case.key,
        "variant": case.variant,
        "runs": shape.runs,
        "load": round(os.getloadavg()[0], 1),
    }
    options = {"runs": shape.runs, "steps": shape.steps, "seconds": SECONDS}
    if case.variant:
        options["variant"] = case.variant
    if server:
        options["server"] = server
    try:
        answer = ask(case.contender, "steps", tell, store=opened.fresh(case.store), **options)
        return {**result, **figures(answer, shape)}
    except Failed as failure:
        tell(f"failed: {failure}")
        return {**result, "failed": str(failure)}


def figures(answer: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """What is kept of an answer. Failed if the store has not every step of the last lap, or was not as durable as everybody's."""
    wanted = shape.runs * shape.steps
    if answer["recorded"] < wanted:
        raise Failed(f"only {answer['recorded']} of {wanted} steps are in the store")
    for name, value in answer["settings"].items():
        if value not in DURABLE[name]:
            raise Failed(f"{name} is {value}: that is not durable")
    steps, gaps = answer["steps"], sorted(answer["gaps"])
    if not gaps:
        raise Failed("no run had two steps")
    return {
        "steps_per_second": round(steps / answer["seconds"], 1),
        "cpu_us": round(answer["cpu_seconds"] / steps * 1e6, 1),
        "server_cpu_us": round(answer["server_cpu_seconds"] / steps * 1e6, 1),
        "p50_ms": round(nearest_rank(gaps, 0.5) * 1e3, 3),
        "p99_ms": round(nearest_rank(gaps, 0.99) * 1e3, 3),
        "config": answer["config"],
    }


STEPS = Section(
    "steps",
    measure,
    tables,
    plots,
    "Durable steps",
    "How many durable steps per second, and at what CPU cost, beside DBOS and LangGraph?",
    outcomes,
)
