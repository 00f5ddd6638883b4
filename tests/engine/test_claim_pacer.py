"""Slots: how much a worker may claim now. A pure policy, so all of it is checked on made-up times."""

import random
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.engine.claim_pacer import (
    BURST_SECONDS,
    FIRST_SLOTS,
    JITTER,
    PORTION_SECONDS,
    ClaimPacer,
)
from outlast.settings import Settings

counts = st.integers(1, 1_000)
ramps = st.sampled_from([0.0, 0.001, 1.0, 5.0]) | st.floats(0.01, 1_000.0)
shares = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.9, 0.99]) | st.floats(0.0, 0.999)
rates = st.sampled_from([0.1, 1.0, 100.0, 1e9, float("inf")]) | st.floats(0.01, 1_000.0)
starts = st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1e7)
seeds = st.none() | st.integers(0, 1_000)


@st.composite
def slots_of_any_kind(draw) -> tuple[ClaimPacer, float, float]:
    """Slots, when they were made, and the ramp they were asked for."""
    start, ramp, seed = draw(starts), draw(ramps), draw(seeds)
    chance = None if seed is None else random.Random(seed)
    share, rate = draw(shares), draw(rates)
    slots = ClaimPacer(
        draw(counts), now=start, ramp=ramp, new_share=share, returned_rate=rate, chance=chance
    )
    return slots, start, ramp


def full(count=10, **options) -> ClaimPacer:
    """With every slot open."""
    return ClaimPacer(count, now=0.0, **options)


def returned_taken(slots: ClaimPacer, now: float, held: int = 0, returned_held: int = 0) -> int:
    """A claim where more has been returned than can be taken."""
    returned = slots.allow(now, held, returned_held).returned
    if returned:
        slots.took(returned)
    return returned


# -- free slots


@given(slots_of_any_kind(), st.floats(0.0, 2_000.0), st.integers(0, 1_200), st.data())
def test_no_more_is_allowed_than_slots_are_free_and_open(made, age, held, data):
    slots, start, _ = made
    limit, returned, _ = slots.allow(start + age, held, data.draw(st.integers(0, held)))
    assert 0 <= returned <= limit <= max(0, slots.count - held)
    assert limit == max(0, slots.open(start + age) - held)


def test_everything_is_open_and_allowed_where_nothing_is_asked_for():
    assert full(20).allow(0.0, 5, 5) == (15, 15, False)
    assert full(20).more_in(0.0) is None


# -- the ramp


@given(slots_of_any_kind(), st.lists(st.floats(0.0, 2_000.0), min_size=1))
def test_number_of_slots_never_decreases(made, ages):
    slots, start, _ = made
    opened = [slots.open(start + age) for age in sorted(ages)]
    assert opened == sorted(opened)
    assert opened[0] >= 1
    assert opened[-1] <= slots.count


@given(slots_of_any_kind())
def test_all_slots_are_open_when_the_ramp_has_passed(made):
    slots, start, ramp = made
    assert slots.open(start + ramp) == slots.count


@given(counts, st.floats(0.1, 1_000.0), seeds)
def test_tenth_is_open_at_first_and_the_others_open_evenly(count, ramp, seed):
    slots = ClaimPacer(
        count, now=0.0, ramp=ramp, chance=None if seed is None else random.Random(seed)
    )
    assert slots.open(0.0) == max(1, count // 10)
    for tenths in range(11):
        part = 0.1 + 0.9 * tenths / 10
        assert slots.open(ramp * tenths / 10) >= max(1, int(count * part))
        assert slots.open(ramp * (1 - JITTER) * tenths / 10) <= max(1, count * part + 1e-6)


def test_chance_shortens_a_ramp_by_a_fifth_at_most_and_each_worker_s_otherwise():
    times = set()
    for seed in range(200):
        slots = ClaimPacer(1_000, now=0.0, ramp=10.0, chance=random.Random(seed))
        times.add(next(now for now in range(0, 10_001, 10) if slots.open(now / 1_000) == 1_000))
    assert 8_000 <= min(times) < 8_200
    assert 9_800 < max(times) <= 10_000
    assert len(times) > 100


# -- the share of new work


@given(counts, shares, st.data())
def test_returned_runs_never_hold_more_than_their_share(count, share, data):
    slots = full(count, new_share=share)
    returned_held = data.draw(st.integers(0, count))
    held = data.draw(st.integers(returned_held, count))
    after = returned_held + slots.allow(0.0, held, returned_held).returned
    if count * share >= 1 and after > returned_held:
        assert after <= max(1, count * (1 - share) + 1e-6)


@given(counts, shares)
def test_returned_runs_get_their_whole_share(count, share):
    """At least one slot: a share for new work must not shut the returned ones out."""
    returned = full(count, new_share=share).allow(0.0, 0, 0).returned
    assert returned >= max(1, int(count * (1 - share)))


@pytest.mark.parametrize(
    ("count", "share", "returned"),
    [(10, 0.2, 8), (9, 0.2, 7), (10, 0.9, 1), (10, 0.99, 1), (100, 0.07, 93), (5, 0.2, 4)],
)
def test_share_is_rounded_to_whole_slots_in_favour_of_new_work(count, share, returned):
    assert full(count, new_share=share).allow(0.0, 0, 0) == (count, returned, False)


def test_new_work_may_take_what_returned_work_leaves():
    assert full(10, new_share=0.2).allow(0.0, 8, 8) == (2, 0, False)
    assert full(10, new_share=0.2).allow(0.0, 3, 0) == (7, 7, False)


@given(st.floats(0.01, 0.99), st.integers(0, 1_000))
def test_where_no_slot_can_be_kept_neither_kind_starves(share, before):
    """New work comes first in its share of any such number of consecutive claims."""
    slots = ClaimPacer(1, now=0.0, new_share=share)
    for _ in range(before):
        slots.took(0)
    turns = []
    for _ in range(200):
        limit, returned, new_first = slots.allow(0.0, 0, 0)
        assert (limit, returned) == (1, 1), (
            "if there is no new work, returned runs are taken in its turn"
        )
        turns.append(new_first)
        slots.took(0 if new_first else 1)
    assert abs(turns.count(True) - 200 * share) <= 1 + 1e-6
    assert _longest(turns, False) <= 1 / share + 1e-6
    assert _longest(turns, True) <= 1 / (1 - share) + 1e-6


def _longest(turns: list[bool], kind: bool) -> int:
    """How many of one kind come in a row, at most."""
    return max((len(list(group)) for turn, group in groupby(turns) if turn is kind), default=0)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_of_few_slots_every_fifth_claim_asks_for_new_work_first(count):
    slots = full(count, new_share=0.2)
    turns = []
    for _ in range(10):
        turns.append(slots.allow(0.0, 0, 0).new_first)
        slots.took(1)
    assert turns == [False, False, False, False, True] * 2


def test_turn_lasts_until_something_was_claimed():
    slots = full(1, new_share=0.5)
    assert not slots.allow(0.0, 0, 0).new_first
    slots.took(1)
    assert [slots.allow(now, 0, 0).new_first for now in (0.0, 1.0, 2.0)] == [True] * 3
    slots.took(0)
    assert not slots.allow(3.0, 0, 0).new_first


def test_without_a_share_new_work_has_no_turn():
    slots = full(1)
    for _ in range(20):
        assert not slots.allow(0.0, 0, 0).new_first
        slots.took(1)


# -- the meter


@given(rates, st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60))
def test_rate_of_returned_runs_holds_over_every_span(rate, pauses):
    slots = ClaimPacer(10_000, now=0.0, returned_rate=rate)
    now, taken = 0.0, []
    for pause in pauses:
        now += pause
        taken.append((now, returned_taken(slots, now)))
    if rate == float("inf"):
        assert all(count == 10_000 for _, count in taken)
        return
    for first, (since, _) in enumerate(taken):
        total = 0
        for until, count in taken[first:]:
            total += count
            assert total <= max(1.0, rate * BURST_SECONDS) + (until - since) * rate + 1e-6


@given(st.floats(0.1, 1_000.0))
def test_worker_that_comes_when_told_gets_the_whole_rate(rate):
    slots = ClaimPacer(1_000_000, now=0.0, returned_rate=rate)
    now, taken, claims = 0.0, 0, 0
    while now < 100.0:
        taken, claims = taken + returned_taken(slots, now), claims + 1
        now += slots.more_in(now)
    assert taken >= 100.0 * rate * 0.95 - 1
    assert claims <= 100.0 / PORTION_SECONDS + 1, "in portions, not one by one"


def test_meter_does_not_hold_up_new_work():
    slots = ClaimPacer(10, now=0.0, returned_rate=1.0)
    assert slots.allow(0.0, 0, 0) == (10, 1, False)
    slots.took(1)
    assert slots.allow(0.0, 1, 1) == (9, 0, False)


def test_runs_taken_beyond_the_rate_are_made_up_for():
    """A suspect is claimed whatever the meter says."""
    slots = ClaimPacer(10, now=0.0, returned_rate=1.0)
    slots.took(1)
    slots.took(1)
    assert slots.more_in(0.0) == pytest.approx(2.0)
    assert slots.allow(1.9, 0, 0).returned == 0
    assert slots.allow(2.0, 0, 0).returned == 1


# -- when to come again


@given(slots_of_any_kind(), st.lists(st.floats(0.0, 10.0), max_size=5))
def test_after_the_time_it_names_more_is_allowed(made, pauses):
    slots, now, _ = made
    for pause in pauses:
        returned_taken(slots, now)
        now += pause
    before = slots.allow(now, 0, 0)
    wait = slots.more_in(now)
    if wait is not None:
        assert wait >= PORTION_SECONDS
        then = now + wait + 1e-6  # what a clock of 1e7 seconds may lose
        after = slots.allow(then, 0, 0)
        assert (
            after.limit > before.limit or after.returned > before.returned or _capped(slots, then)
        )


def _capped(slots: ClaimPacer, now: float) -> bool:
    """The meter has one to give, but the share has not."""
    return slots._tokens >= 1 and slots.allow(now, 0, 0).returned == 0


@given(slots_of_any_kind(), st.floats(0.0, 10.0))
def test_pacer_names_no_time_only_if_time_changes_nothing(made, age):
    slots, start, ramp = made
    now = start + age
    returned_taken(slots, now)
    if slots.more_in(now) is None:
        assert slots.open(now) == slots.count
        assert slots._tokens >= 1
        assert slots.more_in(now + ramp + 1.0) is None


def test_pacer_names_the_sooner_of_two_times():
    slow_ramp = ClaimPacer(2, now=0.0, ramp=900.0, returned_rate=10.0)
    slow_ramp.took(1)
    assert slow_ramp.more_in(0.0) == pytest.approx(0.1)
    slow_meter = ClaimPacer(10, now=0.0, ramp=9.0, returned_rate=0.001)
    slow_meter.took(1)
    assert slow_meter.more_in(0.0) == pytest.approx(1.0)


def test_full_worker_names_no_time_for_long():
    """A worker that is full, ramped up and rested wakes for what ends, not for the clock."""
    slots = ClaimPacer(20, now=0.0, ramp=5.0, new_share=0.2, returned_rate=100.0)
    now, held, wakes = 0.0, 0, 0
    while (wait := slots.more_in(now)) is not None or now == 0.0:
        held += returned_taken(slots, now, held, held)
        now, wakes = now + (wait or 0.05), wakes + 1
    assert held + slots.allow(now, held, held).returned == 16
    assert now < 5.5
    assert wakes <= 25


# -- the defaults


def test_worker_that_starts_takes_over_several_runs_at_once_where_their_workers_died():
    slots = ClaimPacer(20, now=0.0, ramp=5.0, new_share=0.2)
    assert slots.allow(0.0, 0, 0).limit == 2
    slots.took(2)
    assert slots.allow(0.0, 2, 2).limit == 0
    slots.took(2, died=True)
    assert slots.open(0.0) == FIRST_SLOTS == 10
    assert slots.allow(0.0, 2, 2) == (8, 6, False)
    assert ClaimPacer(2, now=0.0, ramp=5.0).open(0.0) == 1


@pytest.mark.parametrize("count", [1, 3, 10, 1_000])
def test_what_died_never_opens_more_slots_than_there_are_nor_closes_any(count):
    slots, plain = ClaimPacer(count, now=0.0, ramp=5.0), ClaimPacer(count, now=0.0, ramp=5.0)
    slots.took(1, died=True)
    for tenths in range(60):
        assert slots.open(tenths / 10) == min(count, max(FIRST_SLOTS, plain.open(tenths / 10)))


def test_by_default_a_worker_that_starts_takes_a_tenth_then_all():
    settings = Settings()
    options = {name: getattr(settings, name) for name in ("ramp", "new_share", "returned_rate")}
    slots = ClaimPacer(100, now=0.0, **options)
    assert slots.allow(0.0, 0, 0) == (10, 8, False)
    assert slots.allow(settings.ramp, 0, 0).limit == 100
