"""Simulate a kill storm: how often an innocent run is condemned, and what a poison run costs.

    python -m bench.storm

The fleet is killed at random whatever it executes. A run makes progress if its worker lives for
`first_step` seconds; otherwise it dies, and another worker takes it over. No store, process or
real clock is involved, only the rule of the stores (`deaths_allowed`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from outlast.store.rows import FLEET_SECONDS, FLEET_SECONDS_MIN, SUSPECT_DEATHS, deaths_allowed

Rule = Callable[[int, int, int], int]


@dataclass(frozen=True)
class Storm:
    """Describe a storm and the settings of the fleet. The defaults are the storm of issue 19."""

    workers: int = 4
    kills_per_minute: float = 60.0
    first_step: float = 1.0
    """Seconds until a run records something, with the time to claim and replay it."""
    recovery: float = 1.0
    """Seconds from a death to the next claim, without the back-off."""
    backoff: float = 1.0
    backoff_max: float = 300.0
    attempts_max: int = 5


def fixed(attempts_max: int, _others: int, _workers: int) -> int:
    """Condemn after `attempts_max` deaths whatever happens to the fleet, as before."""
    return attempts_max


def deaths_of(storm: Storm, rule: Rule, chance: random.Random, *, poison: bool) -> tuple[int, bool]:
    """Execute one run until it makes progress or is condemned; return its deaths, and whether it was."""
    rate = storm.kills_per_minute / 60 / storm.workers
    now, deaths, first_death = 0.0, 0, 0.0
    others: list[float] = []
    """When other workers died, from the shortest period before the first death on."""
    known = -FLEET_SECONDS_MIN
    while True:
        lived = chance.expovariate(rate) if rate else float("inf")
        now += min(lived, storm.first_step)
        if lived >= storm.first_step and not poison:
            return deaths, False
        deaths += 1
        while rate and known < now:
            known += chance.expovariate(rate * max(1, storm.workers - 1))
            others.append(known)
        if deaths == 1:
            first_death = now
        if deaths > SUSPECT_DEATHS:
            since = max(now - FLEET_SECONDS, min(now - FLEET_SECONDS_MIN, first_death))
            died = sum(since < at <= now for at in others)
            if deaths >= rule(storm.attempts_max, died, storm.workers):
                return deaths, True
            now += min(storm.backoff * 2.0 ** (deaths - SUSPECT_DEATHS), storm.backoff_max)
        now += storm.recovery


def condemned_share(storm: Storm, rule: Rule, runs: int, seed: int = 1) -> float:
    """Return the share of innocent runs that become dead letters."""
    chance = random.Random(seed)
    return sum(deaths_of(storm, rule, chance, poison=False)[1] for _ in range(runs)) / runs


def poison_deaths(storm: Storm, rule: Rule, runs: int = 1_000, seed: int = 1) -> float:
    """Return how many workers a poison run kills before it is a dead letter, on average."""
    chance = random.Random(seed)
    return sum(deaths_of(storm, rule, chance, poison=True)[0] for _ in range(runs)) / runs


def main() -> None:
    """Print a table of storms."""
    print("kills/min  first step   innocent runs condemned      deaths of a poison run")
    print("  4 workers                   before        now          before      now")
    for kills in (0.0, 1.0, 12.0, 60.0):
        for first_step in (0.5, 1.0, 2.0, 5.0):
            storm = Storm(kills_per_minute=kills, first_step=first_step)
            shares = [condemned_share(storm, rule, 20_000) for rule in (fixed, deaths_allowed)]
            costs = [poison_deaths(storm, rule, 100) for rule in (fixed, deaths_allowed)]
            print(
                f"{kills:9g} {first_step:9g} s {shares[0]:16.5f} {shares[1]:12.5f}"
                f" {costs[0]:14.1f} {costs[1]:8.1f}"
            )


if __name__ == "__main__":
    main()
