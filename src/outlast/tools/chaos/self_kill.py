"""Willing workers: with `chaos_kills_per_hour`, `outlast worker` drains or kills itself at random. Nobody's own program ever does."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from outlast.api.outlast import Outlast

log = logging.getLogger("outlast.worker")

FIRST_SECONDS = 60.0
"""A worker is left alone for so long after its start: one that is killed at once would never do anything."""
KILLED = 137
"""As a shell reports SIGKILL."""
REASON = "chaos: OUTLAST_CHAOS_KILLS_PER_HOUR"


def seconds_until(dice: random.Random, per_hour: float) -> float:
    """Until a worker's own blow. Gaps are exponential, as of accidents that know nothing of each other."""
    return min(FIRST_SECONDS + dice.expovariate(per_hour / 3600), threading.TIMEOUT_MAX)


def schedule_self_kill(
    app: Outlast, end: Callable[[], object] | None = None
) -> threading.Timer | None:
    """Have this process strike itself once, some time after its first minute. Not in a drain. None: it is not willing."""
    settings = app.settings
    if not settings.chaos_kills_per_hour:
        return None
    dice = random.SystemRandom()
    kill = settings.chaos_mode == "kill" or (settings.chaos_mode == "both" and dice.random() < 0.5)
    seconds = seconds_until(dice, settings.chaos_kills_per_hour)
    log.warning(
        "this worker strikes itself at random, %g times an hour (%s): OUTLAST_CHAOS_KILLS_PER_HOUR",
        settings.chaos_kills_per_hour, settings.chaos_mode, extra={"event": "chaos"},
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    # A thread: a loop that stands still is no reason to live.
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
        "chaos: this worker %s itself", "kills" if kill else "drains", extra={"event": "chaos"}
    )
    if kill:
        end()
    else:
        loop.call_soon_threadsafe(lambda: app._open.drain.begin(REASON))


def _die() -> NoReturn:
    """At once, without a word to anybody. Not by SIGKILL: the kernel keeps PID 1 of a container from that."""
    os._exit(KILLED)
