"""An agent that crashes at any write ends as if undisturbed."""

import pytest
from durable_agent import (
    approve,
    ask,
    ask_and_fail,
    ask_streaming,
    outside,
)

from outlast.testing import crash_everywhere

ENDED = "done 6 RunUsage(input_tokens=90, output_tokens=45, requests=9, tool_calls=11)"


def paid() -> None:
    assert list(outside.paid.values()) == [250]


def refunded() -> None:
    assert outside.paid == {}


def test_agent_survives_a_crash_at_every_write():
    report = crash_everywhere(ask("hi"), outside=approve, fresh=outside.clear, check=paid)
    assert report.result == ENDED


@pytest.mark.extended
def test_streaming_agent_survives_a_crash_at_every_write():
    report = crash_everywhere(ask_streaming("hi"), outside=approve, fresh=outside.clear, check=paid)
    assert report.result is not None
    assert report.result.startswith("done 6 ")


@pytest.mark.extended
def test_effect_of_a_failed_run_is_compensated_whatever_crash_precedes():
    report = crash_everywhere(
        ask_and_fail("hi"), outside=approve, fresh=outside.clear, check=refunded
    )
    assert report.error == "LookupError: after the agent"
