"""Work out when a schedule fires: at the times of a cron expression, or at a fixed interval.

Times are seconds since the epoch, by the store's clock. A cron expression is read in the
schedule's time zone and follows Debian's cron at the changes of daylight saving time: a time that
is skipped fires right after the gap, and a time that occurs twice fires once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import NamedTuple

from outlast.errors import SettingsError

CRON_FIELDS = 5
PARSER_ERRORS = (ArithmeticError, AssertionError, AttributeError, TypeError, ValueError)
"""What the parser raises for some wrong expressions, besides its own error."""
FIRST_WINDOW = 3600.0
"""How many seconds before the end of a range the search for its last times begins."""


class Timing(NamedTuple):
    cron: str | None
    every: float | None
    """Seconds between two firings, if there is no cron expression."""
    tz: str = "UTC"
    start: float = 0.0
    """A time that the interval is counted from. Firings are at this time plus a multiple of it."""

    def after(self, at: float) -> Iterator[float]:
        """Yield the times after `at`, in order. An expression such as February 30 has none."""
        if self.cron is None:
            return self._intervals(at)
        return self._cron_times(at)

    def next(self, at: float) -> float | None:
        """Return the first time after `at`, or None if there is none."""
        return next(self.after(at), None)

    def last(self, after: float, until: float, count: int) -> list[float]:
        """Return the last `count` times that are later than `after` and not later than `until`."""
        window = FIRST_WINDOW
        while True:
            start = max(after, until - window)
            found = list(self.between(start, until))
            if len(found) >= count or start <= after:
                return found[-count:]
            window *= 8

    def between(self, after: float, until: float) -> Iterator[float]:
        """Yield the times that are later than `after` and not later than `until`."""
        for at in self.after(after):
            if at > until:
                return
            yield at

    def _intervals(self, at: float) -> Iterator[float]:
        assert self.every is not None
        count = math.floor((at - self.start) / self.every)
        while True:
            count += 1
            moment = self.start + count * self.every
            # The division may have rounded.
            if moment > at:
                yield moment

    def _cron_times(self, at: float) -> Iterator[float]:
        from cronsim import CronSim

        assert self.cron is not None
        # A time may be equal to `at` or earlier where clocks are set back: the second occurrence
        # of an hour is read as the first.
        for moment in CronSim(self.cron, datetime.fromtimestamp(at, zone_of(self.tz))):
            seconds = moment.timestamp()
            if seconds > at:
                yield seconds

    def check(self) -> None:
        """Raise SettingsError unless this has a valid expression or interval, and a known zone."""
        if (self.cron is None) == (self.every is None):
            raise SettingsError("a schedule needs either cron= or every=.")
        zone_of(self.tz)
        if self.every is not None:
            self._check_interval(self.every)
        else:
            self._check_cron()

    @staticmethod
    def _check_interval(every: float) -> None:
        is_number = isinstance(every, (int, float)) and not isinstance(every, bool)
        if not is_number or not 1 <= every < math.inf:
            raise SettingsError(f"every={every!r} must be a number of seconds, 1 or more.")

    def _check_cron(self) -> None:
        from cronsim import CronSimError

        fields = str(self.cron).split()
        if len(fields) != CRON_FIELDS:
            # The parser takes a sixth field for seconds, which would move all others.
            raise SettingsError(
                f"cron={self.cron!r} is not a cron expression: it has {len(fields)} fields. Use "
                'five fields, such as "0 2 * * *" for 2:00 every day.'
            )
        try:
            found = list(islice(self.after(0.0), 1))
        except (CronSimError, *PARSER_ERRORS) as error:
            raise SettingsError(
                f"cron={self.cron!r} is not a cron expression: {error}. Use five fields, such as "
                '"0 2 * * *" for 2:00 every day.'
            ) from None
        if not found:
            raise SettingsError(f"cron={self.cron!r} never fires: no date matches it.")


def zone_of(name: str) -> tzinfo:
    """Return a time zone by its name. Raise SettingsError if this machine does not know it."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise SettingsError(
            f"tz={name!r} is not a time zone that this machine knows. Use a name such as "
            '"Europe/Berlin". If the machine has no time zone data, run `pip install tzdata`.'
        ) from None
