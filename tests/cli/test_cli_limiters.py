"""`outlast limiters`."""

from __future__ import annotations

import re
import time

import pytest

from outlast.codec.rates import Rate
from outlast.engine.limiter_queue import LIMITERS, STATE
from outlast.engine.limiter_state import LimiterState
from outlast.store.commands import UpdateSession


@pytest.fixture
def busy(outlast):
    """Write the state of a limiter with one use and one that waits."""
    now = time.time()
    state = LimiterState({"tokens": Rate(1000, 3600.0), "requests": Rate(5, 60.0)})
    for _ in range(2):
        ticket = state.insert({"tokens": 800, "requests": 1})
        state.schedule(now)
        if ticket.at <= now:
            state.count(ticket)
    outlast.commit(UpdateSession("openai", "t", {STATE: state.text()}, space=LIMITERS))
    return outlast


def test_limiters_are_listed_with_what_they_have_left(busy):
    header, first, second = busy("limiters").out.splitlines()
    assert re.split(r"  +", header) == [
        "LIMITER", "LIMIT", "ALLOWS", "USED", "LEFT", "ASKED", "WAITING", "NEXT IN",
    ]  # fmt: skip
    assert re.split(r"  +", first.strip())[:7] == [
        "openai", "tokens", "1000/1h", "800", "200", "800", "1",
    ]  # fmt: skip
    assert re.split(r"  +", second.strip()) == ["requests", "5/1m", "1", "4", "1"]
    assert len(first) <= 80


def test_limiters_as_json(busy):
    answer = busy("limiters", "--json").json
    (limiter,) = answer["limiters"]
    assert limiter["limits"]["tokens"] == {
        "limit": 1000, "period": 3600.0, "used": 800, "waiting": 800,
    }  # fmt: skip
    assert (limiter["name"], limiter["waiting"]) == ("openai", 1)
    assert limiter["next"].endswith("Z") or "+" in limiter["next"]
    assert answer["damaged"] == []


def test_store_without_limiters(outlast):
    outlast.submitted("r1")
    assert outlast("limiters").err == "outlast: no limiters were used lately.\n"


def test_damaged_limiter_is_reported_beside_the_others(busy):
    busy.commit(UpdateSession("broken", "t", {STATE: "[]"}, space=LIMITERS))
    answer = busy("limiters")
    assert "openai" in answer.out
    assert "limiter broken is damaged. Its next use starts it again." in answer.err
