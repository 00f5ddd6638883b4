"""Define the options of an experiment, and the settings of its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outlast.errors import OutlastError, SettingsError
from outlast.tools.chaos.plan import Fault, Kind, plan

DEMO = ("outlast.tools.chaos.flows",)


class ChaosRefused(SettingsError):
    """Chaos refuses to start in this environment or with these options."""


class ChaosFailed(OutlastError):
    """The experiment could not finish. This says nothing about the runs."""


@dataclass(frozen=True)
class Options:
    seed: int
    seconds: float = 60.0
    workers: int = 3
    concurrency: int = 10
    rate: float = 5.0
    per_minute: float = 20.0
    kinds: tuple[Kind, ...] = ("term", "kill", "stop", "rolling", "fleet")
    grace: float = 5.0
    lease: float = 2.0
    settle: float = 60.0
    objective: float = 30.0
    modules: tuple[str, ...] = DEMO
    demo: bool = True
    submit: tuple[tuple[str, str], ...] = ()
    """For user modules: the workflows to submit in turn, by name, with their arguments as JSON."""
    store: str | None = None
    server: str | None = None
    shared: bool = False

    def plan(self) -> tuple[Fault, ...]:
        return plan(
            self.seed,
            seconds=self.seconds,
            per_minute=self.per_minute,
            kinds=self.kinds,
            lease=self.lease,
        )


def worker_environ(options: Options, environ: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment: this process's, plus the experiment's own lease and grace.

    Short times apply wherever this process's environment sets none.
    """
    long = options.seconds + options.settle + 600.0
    short: dict[str, Any] = {
        "POLL": 0.5,
        "RAMP": 0.5,
        "LINGER": 0.3,
        "RETURNED_RATE": 10_000,
        "SUSPECT_PATIENCE": 0.1,
        "DEATH_BACKOFF": 0.05,
        "DEATH_BACKOFF_MAX": 0.5,
        "EFFECT_MARGIN": 0.5,
        "VERIFY_ATTEMPTS": 50,
        "MAX_ATTEMPTS": 1000,
        "INTERRUPTIONS_MAX": 100_000,
    }
    own: dict[str, Any] = {
        "LEASE": options.lease,
        "HEARTBEAT": min(0.2, options.lease / 8),
        "GRACE": options.grace,
        "ITEM_MEMORY": long,
        "HTTP": "",
        "CHAOS_KILLS_PER_HOUR": 0,
        **({"ENV_FILE": ""} if options.demo else {}),
    }
    given = {
        name: value
        for name, value in environ.items()
        if name not in ("OUTLAST_STORE", "SHUTDOWN_TIMEOUT")
    }
    return {
        **{f"OUTLAST_{name}": str(value) for name, value in short.items()},
        **given,
        **{f"OUTLAST_{name}": str(value) for name, value in own.items()},
    }
