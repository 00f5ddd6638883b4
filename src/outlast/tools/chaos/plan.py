"""The plan: from a seed, which blow falls when, on whom. Pure: the same seed and numbers, the same plan."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast, get_args

Kind = Literal["term", "kill", "stop", "rolling", "fleet", "server"]

KINDS: tuple[Kind, ...] = get_args(Kind)

WEIGHTS: dict[Kind, int] = {"term": 8, "kill": 10, "stop": 6, "rolling": 1, "fleet": 1, "server": 1}
"""How often each is drawn, against the others."""

QUIET_SECONDS = 1.0
"""Nothing falls so shortly before the end: what falls is to be recovered from under load."""

OUTAGE_SECONDS = (0.3, 2.5)
"""How long a server stays away."""


class Fault(NamedTuple):
    at: float
    """Seconds since the beginning."""
    kind: Kind
    pick: float
    """In [0, 1): which of those that can be struck then."""
    seconds: float
    """How long it lasts: a stop, or a server's outage. 0 for the others."""
    hard: bool
    """Of a fleet: by SIGKILL, else by SIGTERM. Of a server: a crash, else as its operator would end it. Of a stop: it never goes on.
    Of a kill: also whoever is only starting, which harms nobody but must be survived."""


def plan(
    seed: int,
    *,
    seconds: float,
    per_minute: float,
    kinds: Sequence[Kind],
    lease: float,
    first: float = 0.5,
) -> tuple[Fault, ...]:
    """In order. Each kind falls once, in an order of its own, before any falls by chance, as long as there is time for that."""
    dice = random.Random(f"outlast chaos {seed}")  # noqa: S311 - chance that can be had again
    if not kinds or per_minute <= 0:
        return ()
    kinds = [kind for kind in KINDS if kind in kinds]  # in whatever order they were named
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
    """`term,kill`: kinds by commas. ValueError for one that there is not."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in KINDS:
            raise ValueError(f"there is no blow {name!r}: choose of {', '.join(KINDS)}.")
    if not names:
        raise ValueError(f"name at least one blow: {', '.join(KINDS)}.")
    return tuple(cast("Kind", name) for name in dict.fromkeys(names))


def _drawn(dice: random.Random, kinds: Sequence[Kind]) -> Kind:
    return dice.choices(list(kinds), [WEIGHTS[kind] for kind in kinds])[0]


def _fault(dice: random.Random, at: float, kind: Kind, lease: float) -> Fault:
    pick, chance = dice.random(), dice.random()
    seconds = 0.0
    if (
        kind == "stop"
    ):  # most are longer than the lease: whoever goes on then is overtaken, and tries to write all the same
        within, beyond = dice.uniform(0.1, 0.6) * lease, dice.uniform(1.5, 4.0) * lease
        seconds = within if chance < 0.25 else beyond
    elif kind == "server":
        seconds = dice.uniform(*OUTAGE_SECONDS)
    hard = chance > 0.9 if kind == "stop" else chance < (0.25 if kind == "kill" else 0.5)
    return Fault(round(at, 3), kind, pick, round(seconds, 3), hard)
