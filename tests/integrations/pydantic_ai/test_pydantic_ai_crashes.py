"""An agent that crashes at any write ends as if undisturbed."""

from collections import Counter

import pytest
from durable_agent import PAY, PLAN, RESULT, approve, ask, ask_and_fail, ask_streaming, outside

from outlast.testing import crash_everywhere
from support.agent_programs import call_of, calls_of

AT_ONCE = 6
"""How many calls of the first turn are in flight at once."""


def check_calls() -> None:
    """Every call was made, at most those in flight at one crash twice, and the effect once."""
    made = Counter(map(call_of, outside.lines))
    assert set(made) == set(calls_of(PLAN))
    assert made.total() <= len(made) + AT_ONCE
    assert made[PAY] == 1


def check_refund() -> None:
    """The effect was compensated. A compensation is repeated under the key of its effect."""
    assert outside.count(PAY) == 1
    assert set(outside.keys("refund 250")) == set(outside.keys(PAY))


def test_agent_survives_a_crash_at_every_write():
    report = crash_everywhere(ask("hi"), outside=approve, fresh=outside.clear, check=check_calls)
    assert report.result == RESULT


@pytest.mark.extended
def test_streaming_agent_survives_a_crash_at_every_write():
    report = crash_everywhere(
        ask_streaming("hi"), outside=approve, fresh=outside.clear, check=check_calls
    )
    assert report.result is not None
    assert report.result.startswith("done 6 ")
    assert "PartDeltaEvent" in outside.events


@pytest.mark.extended
def test_effect_of_a_failed_run_is_compensated_whatever_crash_precedes():
    report = crash_everywhere(
        ask_and_fail("hi"), outside=approve, fresh=outside.clear, check=check_refund
    )
    assert report.error == "LookupError: after the agent"
