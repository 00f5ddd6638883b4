"""Finish a Prune in further calls.

One call checks a few hundred runs, so that the server can serve other clients in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from outlast.store.commands import Prune
from outlast.store.redis.outcomes import Pruned


class PruneCursor:
    """Remember where the last Prune stopped.

    Many runs may have to stay: dead letters, and children of parents that have not ended. A Prune
    continues where the last one stopped, up to the end, and then covers the beginning. So such runs
    are not checked again for each batch behind them.
    """

    def __init__(self) -> None:
        self._start = 0
        """The number of runs that must stay before the next run that a Prune checks."""

    def finish(self, prune: Prune, done: Pruned, more_of: Callable[[int, int], Pruned]) -> int:
        """Return how many runs a Prune deleted, including those of its first call, `done`.

        `more_of(count, start)` makes the next call: `count` runs are deleted, and `start` runs are
        passed over.
        """
        count, at, more = done.gone, done.passed, bool(done.more)
        of_all = not (prune.items or prune.sessions or prune.ids)
        before = self._start if more and of_all else 0
        turn = at if before > at else None
        at, until = max(at, before), math.inf
        while count < prune.limit and (more or turn is not None):
            # The end is reached. Continue with the runs before the starting point.
            if not more and turn is not None:
                at, turn, until = turn, None, before
            done = more_of(count, at)
            count += done.gone
            at = done.passed
            more = bool(done.more) and at < until
        if of_all:
            self._start = at if more else 0
        return count
