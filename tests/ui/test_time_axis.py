"""The time axis: long idle times are short, and order is kept."""

from hypothesis import given
from hypothesis import strategies as st

from outlast.http.web.time_axis import TimeAxis

TIMES = st.floats(0, 1e6, allow_nan=False)
INTERVALS = st.lists(st.tuples(TIMES, TIMES).map(sorted).map(tuple), max_size=8)


def number(percent):
    return float(percent.removesuffix("%"))


def test_a_wait_of_days_leaves_room_for_the_work():
    day = 86_400.0
    axis = TimeAxis([(0, 10), (3 * day, 3 * day + 10)], 0, 3 * day + 10)
    first, second = axis.place(0, 10), axis.place(3 * day, 3 * day + 10)
    assert number(first.width) > 40
    assert number(second.width) > 40
    ((place, label),) = axis.breaks()
    assert number(place.width) < 10
    assert label == "2 d 23 h"


def test_a_short_interval_can_be_seen_at_both_ends():
    axis = TimeAxis([(0, 1000)], 0, 1000)
    for at in (0, 1000):
        place = axis.place(at, at)
        assert number(place.width) > 0
        assert number(place.x) + number(place.width) <= 100


def test_an_axis_without_any_work_has_one_part():
    axis = TimeAxis([], 5, 5)
    assert axis.x(5) == 0
    assert len(axis.ticks()) < 20


@given(INTERVALS, TIMES, TIMES)
def test_positions_keep_the_order_of_times_and_stay_on_the_axis(busy, one, other):
    began = min([one, other, *(a for a, _ in busy)])
    ended = max([one, other, *(b for _, b in busy)])
    axis = TimeAxis(busy, began, ended)
    low, high = sorted([one, other])
    assert 0 <= axis.x(low) <= axis.x(high) <= 100.0001
    assert len(axis.ticks()) <= 12
    for place, _ in axis.breaks():
        assert 0 <= number(place.x) <= 100
