"""The waits of the test suite end when they should, and fail when nothing happens any more."""

from itertools import chain, count, repeat

import pytest

from support.waiting import wait_for_state, wait_until

BRIEFLY = 0.05


def test_wait_returns_the_first_true_result():
    results = iter([None, 0, "", "here", "later"])
    assert wait_until(lambda: next(results), timeout=BRIEFLY) == "here"


def test_wait_fails_with_its_message_when_the_condition_stays_false():
    with pytest.raises(AssertionError, match=r"still waiting after 0\.05 s: no answer"):
        wait_until(lambda: False, "no answer", timeout=BRIEFLY)


def test_wait_for_a_state_goes_on_while_the_state_changes():
    """The state that is waited for comes after many time-outs."""
    states = count()
    assert wait_for_state(lambda: next(states), lambda n: n == 20, timeout=0.001, pause=0.01) == 20


def test_wait_for_a_state_fails_when_the_state_no_longer_changes():
    states = chain(range(5), repeat(5))
    with pytest.raises(AssertionError, match="stuck"):
        wait_for_state(lambda: next(states), lambda n: n > 5, lambda: "stuck", timeout=BRIEFLY)
    assert next(states) == 5
