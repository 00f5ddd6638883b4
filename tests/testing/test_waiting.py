"""The waits of the test suite end when they should, and fail when nothing happens any more."""

from itertools import chain, count, repeat

import pytest

from support import waiting
from support.waiting import wait_for_state, wait_until


class Time:
    """A `time` module whose time passes only while a wait sleeps."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture(autouse=True)
def _time(monkeypatch):
    monkeypatch.setattr(waiting, "time", Time())


def test_wait_returns_the_first_true_result():
    results = iter([None, 0, "", "here", "later"])
    assert wait_until(lambda: next(results), timeout=1.0, pause=0.1) == "here"


def test_wait_fails_with_its_message_when_the_condition_stays_false():
    with pytest.raises(AssertionError, match=r"still waiting after 0\.05 s: no answer"):
        wait_until(lambda: False, "no answer", timeout=0.05)


def test_wait_for_a_state_goes_on_while_the_state_changes():
    """The state that is waited for comes after many time-outs."""
    states = count()
    assert wait_for_state(lambda: next(states), lambda n: n == 20, timeout=1.0, pause=0.9) == 20


def test_wait_for_a_state_fails_when_the_state_no_longer_changes():
    states = chain(range(5), repeat(5))
    with pytest.raises(AssertionError, match="stuck"):
        wait_for_state(lambda: next(states), lambda n: n > 5, lambda: "stuck", timeout=1.0)
    assert next(states) == 5
