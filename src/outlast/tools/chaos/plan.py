"""Plan from a seed which fault hits which worker when.

The plan is pure: the same seed and numbers give the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast, get_args

Kind = Literal["term", "kill", "stop", "rolling", "fleet", "server"]

KINDS: tuple[Kind, ...] = get_args(Kind)

WEIGHTS: dict[Kind, int] = {"term": 8, "kill": 10, "stop": 6, "rolling": 1, "fleet": 1, "server": 1}
"""The relative weight of each kind."""

QUIET_SECONDS = 1.0
"""No fault falls this close to the end, so that every recovery happens under load."""

OUTAGE_SECONDS = (0.3, 2.5)
"""How long a server outage lasts."""


class Fault(NamedTuple):
    at: float
    """Seconds since the experiment began."""
    kind: Kind
    pick: float
    """In [0, 1): selects one of the workers that the fault can hit at that time."""
    seconds: float
    """How long a stop or a server outage lasts. 0 for the other kinds."""
    hard: bool
    """The hard variant of the kind.

    - fleet: SIGKILL instead of SIGTERM
    - server: a crash instead of an orderly stop
    - stop: the worker never resumes
    - kill: also a worker that is still starting, which does no harm but must be survived
    """


def plan(
    seed: int,
    *,
    seconds: float,
    per_minute: float,
    kinds: Sequence[Kind],
    lease: float,
    first: float = 0.5,
) -> tuple[Fault, ...]:
    """Return the faults in order of time.

    Each kind falls once, in a shuffled order, before any falls at random, if time allows.
    """
    dice = random.Random(f"outlast chaos {seed}")  # noqa: S311 - reproducible
    if not kinds or per_minute <= 0:
        return ()
    # The order in which the kinds were named does not matter.
    kinds = [kind for kind in KINDS if kind in kinds]
    once = list(kinds)
    dice.shuffle(once)
    faults: list[Fault] = []
    at = first
    while at < seconds - min(QUIET_SECONDS, seconds / 4):
        kind = once.pop() if once else _drawn(dice, kinds)
        faults.append(_fault(dice, at, kind, lease))
        at += dice.expovariate(per_minute / 60)
    return tuple(faults)


def parse_kinds(text: str) -> tuple[Kind, ...]:
    """Parse comma-separated kinds, such as `term,kill`. Raise ValueError for an unknown kind."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in KINDS:
            raise ValueError(f"there is no fault {name!r}: choose from {', '.join(KINDS)}.")
    if not names:
        raise ValueError(f"name at least one fault: {', '.join(KINDS)}.")
    return tuple(cast("Kind", name) for name in dict.fromkeys(names))


def _drawn(dice: random.Random, kinds: Sequence[Kind]) -> Kind:
    return dice.choices(list(kinds), [WEIGHTS[kind] for kind in kinds])[0]


def _fault(dice: random.Random, at: float, kind: Kind, lease: float) -> Fault:
    pick = dice.random()
    chance = dice.random()
    seconds = 0.0
    # Most stops outlast the lease: the resumed worker is overtaken and still tries to write.
    if kind == "stop":
        within = dice.uniform(0.1, 0.6) * lease
        beyond = dice.uniform(1.5, 4.0) * lease
        seconds = within if chance < 0.25 else beyond
    elif kind == "server":
        seconds = dice.uniform(*OUTAGE_SECONDS)
    hard = chance > 0.9 if kind == "stop" else chance < (0.25 if kind == "kill" else 0.5)
    return Fault(round(at, 3), kind, pick, round(seconds, 3), hard)
