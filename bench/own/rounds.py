"""Rounds: every case once, then every case again. A machine that slows down slows all of them, not one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ONCE = frozenset({"memory", "worker", "server", "postgres_growth", "redis_growth", "telemetry"})
"""Cases that take long and vary little, or take turns by themselves: they are measured in the first round only."""

Samples = dict[str, list[dict[str, float]]]
"""The numbers of each case, one dict a round."""


def measure(
    cases: Sequence[str], rounds: int, folder: Path, tell: Callable[[str], None]
) -> Samples:
    samples: Samples = {case: [] for case in cases}
    for number in range(1, rounds + 1):
        for case in cases:
            if number == 1 or case not in ONCE:
                tell(f"round {number} of {rounds}: {case}")
                samples[case].append(_measure_one(case, folder))
    return samples


def _measure_one(case: str, folder: Path) -> dict[str, float]:
    """In a process of its own, so that no case inherits another's memory, caches or threads."""
    command = [sys.executable, "-m", "bench.own.case", case, "--dir", str(folder)]
    repository = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=repository, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(
            f"bench: case {case} failed (exit {done.returncode}); its own words are above."
        )
    return json.loads(done.stdout)
