"""Results of a contest that never was, in the form of `bench/results.json`."""

from __future__ import annotations

import random
from typing import Any

from bench.contest.growth import COSTS, JOURNALS, RUNS, STORES, VALUES
from bench.contest.stepcases import CASES, HUNDRED, LONE, SHAPES, VARIANTS

SPEED = {"Outlast": 20_000.0, "raw": 5_000.0, "DBOS": 250.0, "LangGraph": 500.0}


def steps_found(rounds: int = 3) -> dict[str, Any]:
    return {
        "seconds": 2.0,
        "servers": "PostgreSQL 18.0, Redis 6.2.14",
        "packages": {"DBOS": "dbos==3.3.0", "LangGraph": "langgraph==1.2.20"},
        "tried": [
            _result(case.key, case.name, shape.runs, 0) | {"variant": variant}
            for case in CASES
            for variant in VARIANTS.get((case.name, case.place), ())
            for shape in (LONE, HUNDRED)
        ],
        "rounds": [
            [_result(case.key, case.name, shape.runs, number) for shape in SHAPES for case in CASES]
            for number in range(rounds)
        ],
    }


def _result(key: str, name: str, runs: int, number: int) -> dict[str, Any]:
    noise = 1 + random.Random(f"{key} {runs} {number}").random() / 10
    return {
        "case": key, "variant": "", "runs": runs, "load": 0.4, "steps_per_second": round(SPEED[name.partition(",")[0]] * noise, 1),
        "cpu_us": round(1e6 / SPEED[name.partition(",")[0]], 1), "server_cpu_us": 12.5, "p50_ms": 1.25, "p99_ms": 9.5 * noise, "config": f"as {name}",
    }  # fmt: skip


def growth_found() -> dict[str, Any]:
    room = {"bytes_a_step": 203.0, "written_a_step": 407.0, "empty": 1_000, "filled": 2_001_000, "pruned": 501_000, "filled_again": 2_101_000, "shrunk": 2_000}  # fmt: skip
    return {
        kind: {
            "runs": {str(size): {cost.name: 2.0 for cost in COSTS} for size in RUNS},
            "journals": {
                str(size): {"next_step_ms": 0.3, "replay_ms": size / 100} for size in JOURNALS
            },
            "values": {
                str(size): {
                    "steps_per_second": 1e8 / size,
                    "megabytes_per_second": 100.0,
                    "cpu_us": 50.0,
                }
                for size in VALUES
            },
            "space": room,
        }
        for kind in STORES
    }


def death_found() -> dict[str, Any]:
    taken = {
        "exit_seconds": 1.0, "exit_status": 0, "killed": False, "age_seconds": 3.0, "begun_after": 0, "finished_by_a": 0, "taken": 10, "taken_first": 0.5,
        "taken_last": 0.6, "finished": 10, "finished_last": 6.0, "redone_seconds": 3.2, "done_twice": 0, "unfinished": 0, "left": 0,
    }  # fmt: skip
    late = {**taken, "taken_last": 12.0, "done_twice": 4}
    never = {
        **taken, "taken": 0, "taken_first": None, "taken_last": None, "finished": 0, "finished_last": None, "unfinished": 10, "left": 10,
    }  # fmt: skip
    ended = {**taken, "taken": 0, "taken_first": None, "taken_last": None, "finished_by_a": 10}
    names = ("Outlast, runs (SQLite)", "DBOS, another executor (Postgres)", "Celery, chain (Redis)")
    killed = dict(zip(names, ([taken, taken, taken], [never], [late]), strict=True))
    return {"trials": {"fits": {names[0]: [ended]}, "killed": killed}, "takeover": {}}


def results() -> dict[str, Any]:
    place = "Linux with 2 cores, ext4; Python 3.11.7"
    return {
        "steps": {
            "when": "2026-11-16, commit abc1234",
            "place": place,
            "rounds": 3,
            "found": steps_found(),
        },
        "death": {
            "when": "2026-11-16, commit abc1234",
            "place": place,
            "rounds": 3,
            "found": death_found(),
        },
        "growth": {
            "when": "2026-11-16, commit abc1234",
            "place": place,
            "rounds": 1,
            "found": growth_found(),
        },
    }
