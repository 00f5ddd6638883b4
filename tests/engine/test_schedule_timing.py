"""The times of schedules: cron expressions, intervals, and both changes of daylight saving time."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise

import pytest

from outlast.engine.schedule_timing import Timing
from outlast.errors import SettingsError

BERLIN = "Europe/Berlin"


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def times(timing: Timing, after: str, count: int) -> list[str]:
    found = islice(timing.after(seconds(after)), count)
    return [datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M") for at in found]


def test_cron_fires_at_the_local_time_of_its_zone():
    timing = Timing("0 2 * * *", None, BERLIN)
    assert times(timing, "2026-11-18T12:00", 2) == ["11-19 01:00", "11-20 01:00"]


def test_time_that_is_skipped_in_spring_fires_after_the_gap():
    # On March 29, 2026, 2:00 is followed by 3:00, which is 1:00 UTC.
    timing = Timing("30 2 * * *", None, BERLIN)
    assert times(timing, "2026-03-28T00:00", 3) == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]


def test_time_that_occurs_twice_in_autumn_fires_once():
    # On October 25, 2026, 3:00 is followed by 2:00. 2:30 is 0:30 UTC, and again 1:30 UTC.
    timing = Timing("30 2 * * *", None, BERLIN)
    assert times(timing, "2026-10-24T12:00", 2) == ["10-25 00:30", "10-26 01:30"]
    for start in ("2026-10-25T00:31", "2026-10-25T01:10", "2026-10-25T01:40"):
        assert times(timing, start, 1) == ["10-26 01:30"], start


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_half_hourly_cron_fires_every_half_hour_through_the_change(day):
    timing = Timing("*/30 * * * *", None, BERLIN)
    found = list(islice(timing.after(seconds(f"{day}T00:00")), 48))
    assert [b - a for a, b in pairwise(found)] == [1800.0] * 47


def test_interval_counts_from_its_start():
    timing = Timing(None, 90.0, start=1000.0)
    assert list(islice(timing.after(1000.0), 3)) == [1090.0, 1180.0, 1270.0]
    assert timing.next(1089.999) == 1090.0
    assert timing.next(1090.0) == 1180.0


@pytest.mark.parametrize("count", [1, 3, 100])
@pytest.mark.parametrize(
    "timing",
    [
        Timing("*/7 * * * *", None, BERLIN),
        Timing("30 2 * * *", None, BERLIN),
        Timing("0 0 1 1 *", None),
        Timing(None, 61.5, start=3.0),
    ],
)
def test_last_times_are_the_end_of_all_times(timing, count):
    after, until = seconds("2026-10-20T03:00"), seconds("2026-10-27T05:00")
    assert timing.last(after, until, count) == list(timing.between(after, until))[-count:]


def test_last_time_of_a_long_range_is_found_without_reading_all_of_it():
    timing, until = Timing("* * * * *", None), seconds("2026-11-18T12:00")
    assert timing.last(until - 50 * 365 * 86_400, until, 2) == [until - 60, until]


@pytest.mark.parametrize(
    ("timing", "message"),
    [
        (Timing("0 2 * *", None), "is not a cron expression"),
        (Timing("61 2 * * *", None), "Bad minute"),
        (Timing("0 0 30 2 *", None), "cron="),
        (Timing(7, None), "is not a cron expression"),
        (Timing(None, None), "either cron= or every="),
        (Timing("0 2 * * *", 5.0), "either cron= or every="),
        (Timing(None, 0.5), "1 or more"),
        (Timing(None, True), "1 or more"),
        (Timing(None, float("inf")), "1 or more"),
        (Timing("0 2 * * *", None, "Europe/Bern"), "is not a time zone"),
        (Timing("0 2 * * *", None, ""), "is not a time zone"),
        (Timing("0 2 * * *", None, "../etc/passwd"), "is not a time zone"),
    ],
)
def test_wrong_timing_is_refused_with_a_reason(timing, message):
    with pytest.raises(SettingsError, match=message):
        timing.check()


@pytest.mark.parametrize("cron", ["0 0 2 * * *", "*/10 * * * * *", "0 2 * *", "@daily", ""])
def test_cron_expression_must_have_five_fields(cron):
    with pytest.raises(SettingsError, match=r"Use five"):
        Timing(cron, None).check()
