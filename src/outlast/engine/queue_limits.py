"""Check the limits of a queue, and build the command that sets them."""

from __future__ import annotations

from typing import Any

from outlast.codec.rates import Rate
from outlast.errors import SettingsError
from outlast.store.commands import SetQueueLimits

KEY_STARTS_MAX = 10_000
"""The most starts that a rate per key may allow in its period. A claim goes back that far."""
UNCHANGED: Any = object()
_LEAST = {"depth": 1, "concurrency": 0, "per_key_concurrency": 1}


def limits_command(
    queue: str,
    *,
    depth: int | None = UNCHANGED,
    concurrency: int | None = UNCHANGED,
    per_key_concurrency: int | None = UNCHANGED,
    per_key_rate: str | None = UNCHANGED,
    paused: bool | None = None,
) -> SetQueueLimits:
    """Build the command for the given limits. None removes a limit.

    Raise ValueError for a limit that is no whole number or too low, and SettingsError for a wrong
    rate.
    """
    counts = {
        "depth": depth,
        "concurrency": concurrency,
        "per_key_concurrency": per_key_concurrency,
    }
    for what, limit in counts.items():
        if limit is UNCHANGED or limit is None:
            continue
        if type(limit) is not int or limit < _LEAST[what]:
            raise ValueError(
                f"{what}={limit!r} must be a whole number from {_LEAST[what]}, or None for no "
                "limit."
            )
    rate = None if per_key_rate in (UNCHANGED, None) else check_key_rate(per_key_rate)
    return SetQueueLimits(
        queue,
        _given(depth),
        _given(concurrency),
        keep_depth=depth is UNCHANGED,
        keep_concurrency=concurrency is UNCHANGED,
        key_concurrency_max=_given(per_key_concurrency),
        key_starts_max=rate.limit if rate else None,
        key_period=rate.period if rate else None,
        keep_key_concurrency=per_key_concurrency is UNCHANGED,
        keep_key_rate=per_key_rate is UNCHANGED,
        paused=paused,
    )


def check_key_rate(text: str | None) -> Rate:
    """Parse a rate per key such as "100/1m". Raise SettingsError."""
    rate = Rate.parse(text, "the rate per key")
    if rate.limit > KEY_STARTS_MAX:
        raise SettingsError(
            f"the rate per key is {text!r}: it may allow at most {KEY_STARTS_MAX:,} starts. Use a "
            "shorter period."
        )
    return rate


def _given(limit: int | None) -> int | None:
    return None if limit is UNCHANGED else limit
