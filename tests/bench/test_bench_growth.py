"""Test the tables of growth: a cost that grows is shown as a factor, and a store may fail."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench.contest import grown
from bench.contest.growth import plots, tables
from bench_samples import growth_found

from outlast import Outlast
from support.waiting import WAIT_SECONDS

REPOSITORY = Path(__file__).parents[2]


def test_growth_is_shown_as_a_factor_also_where_more_is_better() -> None:
    found = growth_found()
    found["sqlite"]["runs"]["1000000"] |= {"claim_ms": 6.0, "hundred_steps_per_second": 0.5}
    lines = [line for line in tables(found).splitlines() if line.startswith("| SQLite")]
    assert next(line for line in lines if "claim of one run" in line).rstrip(" |").endswith("3.00x")
    assert next(line for line in lines if "steps/s" in line).rstrip(" |").endswith("4.00x")


def test_failed_store_is_named_and_the_others_have_their_figures() -> None:
    found = growth_found()
    found["redis"] = {verb: {"failed": "Traceback\nMemoryError"} for verb in found["redis"]}
    text = tables(found)
    assert text.count("Traceback … MemoryError") == 4
    assert "2,000" in text
    assert "failed" in plots(found)["benchmarks-growth.svg"]


def test_figures_of_a_small_store_are_measured_with_a_real_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    for name in ("execute", "timed"):
        monkeypatch.setattr(grown, name, partial(few, getattr(grown, name)))
    addresses = [f"sqlite:///{tmp_path / name}.db" for name in ("small", "large")]
    found = grown.runs(Namespace(store=addresses, sizes=[60, 120], laps=1))
    assert set(found) == {"60", "120"}
    assert all(figure > 0 for costs in found.values() for figure in costs.values())


def few(measure: Callable[..., Any], app: Outlast, name: str, *, runs: int, steps: int) -> Any:
    """Do the same with at most three runs of ten steps."""
    return measure(app, name, runs=min(runs, 3), steps=min(steps, 10))


def test_replay_executes_no_step_again(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.contest.grown", "journals", "--sizes", "30"]
    done = subprocess.run(
        [*command, "--store", f"sqlite:///{tmp_path / 'a.db'}"], cwd=REPOSITORY, check=True, capture_output=True, text=True, timeout=WAIT_SECONDS
    )  # fmt: skip
    assert json.loads(done.stdout)["30"]["replay_ms"] > 0


def test_pruning_gives_room_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grown, "SPACE_RUNS", 20)
    room = grown.space(Namespace(store=[f"sqlite:///{tmp_path / 'b.db'}"]))
    assert 100 < room["bytes_a_step"] < 1_000
    assert room["shrunk"] < room["pruned"] <= room["filled"]
    assert room["filled_again"] < room["filled"] * 1.2, "what was pruned is not used again"
