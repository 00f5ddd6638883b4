"""The tables of growth: a cost that grows is told as a factor, and a store that failed spoils nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.contest.growth import plots, tables
from bench_samples import growth_found

from support.waiting import WAIT_SECONDS

REPOSITORY = Path(__file__).parents[2]


def test_what_costs_three_times_as_much_grows_three_times_also_where_more_is_better() -> None:
    found = growth_found()
    found["sqlite"]["runs"]["1000000"] |= {"claim_ms": 6.0, "hundred_steps_per_second": 0.5}
    lines = [line for line in tables(found).splitlines() if line.startswith("| SQLite")]
    assert next(line for line in lines if "claim of one run" in line).rstrip(" |").endswith("3.00x")
    assert next(line for line in lines if "steps/s" in line).rstrip(" |").endswith("4.00x")


def test_a_store_that_failed_is_named_and_the_others_have_their_figures() -> None:
    found = growth_found()
    found["redis"] = {verb: {"failed": "Traceback\nMemoryError"} for verb in found["redis"]}
    text = tables(found)
    assert text.count("Traceback … MemoryError") == 4
    assert "2,000" in text
    assert "failed" in plots(found)["benchmarks-growth.svg"]


def test_the_figures_of_a_small_store_are_measured_with_a_real_death(tmp_path: Path) -> None:
    addresses = [f"sqlite:///{tmp_path / name}.db" for name in ("small", "large")]
    found = _grown("runs", "--store", *addresses, "--sizes", "60", "120", "--laps", "1")
    assert set(found) == {"60", "120"}
    assert all(figure > 0 for costs in found.values() for figure in costs.values())


def test_a_replay_executes_no_step_again_and_room_is_given_back(tmp_path: Path) -> None:
    journals = _grown("journals", "--store", f"sqlite:///{tmp_path / 'a.db'}", "--sizes", "30")
    assert journals["30"]["replay_ms"] > 0
    room = _grown("space", "--store", f"sqlite:///{tmp_path / 'b.db'}")
    assert 100 < room["bytes_a_step"] < 1_000
    assert room["shrunk"] < room["pruned"] <= room["filled"]
    assert room["filled_again"] < room["filled"] * 1.2, "what was pruned is not used again"


def _grown(*words: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "bench.contest.grown", *words]
    done = subprocess.run(
        command, cwd=REPOSITORY, check=True, capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    return json.loads(done.stdout)
