"""Crash a story of effects at its writes and acts, and judge what the bank has done."""

import os
from collections import Counter

from teller import bank, hold, pay, work

from outlast import workflow
from outlast.testing import crash_everywhere
from support.crash_points import crash_at_some

LONG = "OUTLAST_TEST_KILLS" in os.environ
"""Whether every story dies at each of its writes, on every store and with several seeds, as in `make soak`."""


def check(*done: str, undone: bool = False, order: tuple[str, ...] | None = None):
    """Each of these was done exactly once, and undone exactly once or not at all."""

    def look() -> None:
        expected = Counter(f"+{one}" for one in done)
        if undone:
            expected += Counter(f"-{one}" for one in done)
        assert Counter(bank.order) == expected, bank.log
        if order is not None:
            assert tuple(one for one in bank.order if one[0] == "-") == order, bank.log

    return look


def everywhere(call, look, *, every: int = 9, every_act: int = 2, **options):
    """Crash at every second act and every ninth write. With OUTLAST_TEST_KILLS, crash at all of them.

    A crash in an act is also one between two writes: after the intent, or before the outcome.
    """
    options = {"fresh": bank.__init__, "check": look, **options}
    if options.get("store") == "sqlite":
        return crash_at_some(call, every=9 if LONG else 15, every_act=3, **options)
    if LONG or "writes" in options:
        return crash_everywhere(call, **options)
    if options.get("every_life"):
        return crash_at_some(call, every=11, first=2, every_act=4, **options)
    return crash_at_some(call, every=every, every_act=every_act, **options)


@workflow
async def pays() -> list[str]:
    first = await pay("a")
    seen = await work("between")
    return [first, seen, await hold("b"), await pay("c")]
