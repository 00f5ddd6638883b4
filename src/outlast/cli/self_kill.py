"""Let `outlast worker` drain or kill itself at random, with `chaos_kills_per_hour`.

A user's own program never does this.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from outlast.api.internals import internals

if TYPE_CHECKING:
    from outlast.api.outlast import Outlast

log = logging.getLogger("outlast.worker")

FIRST_SECONDS = 60.0
"""How long a worker is left alone after its start. One killed at once would never do any work."""
KILLED = 137
"""The exit code a shell reports for SIGKILL."""
REASON = "chaos: OUTLAST_CHAOS_KILLS_PER_HOUR"


def seconds_until(dice: random.Random, per_hour: float) -> float:
    """Return the seconds until a worker kills itself.

    Gaps are exponential, like independent accidents.
    """
    return min(FIRST_SECONDS + dice.expovariate(per_hour / 3600), threading.TIMEOUT_MAX)


def schedule_self_kill(
    app: Outlast, end: Callable[[], object] | None = None
) -> threading.Timer | None:
    """Schedule one drain or kill of this process, after its first minute.

    A process that is draining by then is left alone. Return None if the setting is off.
    """
    settings = app.settings
    if not settings.chaos_kills_per_hour:
        return None
    dice = random.SystemRandom()
    kill = settings.chaos_mode == "kill" or (settings.chaos_mode == "both" and dice.random() < 0.5)
    seconds = seconds_until(dice, settings.chaos_kills_per_hour)
    log.warning(
        "This worker kills itself at random, %g times an hour (%s), because "
        "OUTLAST_CHAOS_KILLS_PER_HOUR is set.",
        settings.chaos_kills_per_hour,
        settings.chaos_mode,
        extra={"event": "chaos"},
    )
    loop = asyncio.get_running_loop()
    # Use a thread: a blocked event loop must not prevent the kill.
    timer = threading.Timer(seconds, lambda: _strike(app, loop, kill=kill, end=end or _die))
    timer.daemon = True
    timer.start()
    return timer


def _strike(
    app: Outlast, loop: asyncio.AbstractEventLoop, *, kill: bool, end: Callable[[], object]
) -> None:
    if app.draining:
        return
    log.warning(
        "Chaos: this worker %s now.",
        "kills itself" if kill else "drains itself",
        extra={"event": "chaos"},
    )
    if kill:
        end()
    else:
        loop.call_soon_threadsafe(lambda: internals(app).shutdown.begin(REASON))


def _die() -> NoReturn:
    """Exit at once, without cleanup.

    Not by SIGKILL: the kernel protects PID 1 of a container from it.
    """
    os._exit(KILLED)
