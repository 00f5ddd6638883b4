"""`outlast budgets`, and `outlast decide` for a budget."""

from __future__ import annotations

import pytest

from outlast.codec.cost import Cost
from outlast.engine.budget_state import BudgetState, hold_id
from outlast.engine.budget_store import BUDGETS, STATE
from outlast.store.commands import UpdateSession


def a_state() -> BudgetState:
    limits = dict(Cost.of({"usd": 5, "tokens": 1000}))
    state = BudgetState("answer", limits)
    for number, usd in enumerate((4, 0.75)):
        state.reserve(hold_id("r-1", 1, number), Cost.of({"usd": usd, "tokens": 250}), limits)
    state.settle(hold_id("r-1", 1, 0), Cost.of({"usd": 4, "tokens": 300}))
    state.ask("r-1", 1, Cost.of({"usd": 1}))
    return state


@pytest.fixture
def busy(outlast):
    """Write the state of a budget with one use that settled and one that is in progress."""
    for id in ("run:r-1/answer", "run:r-2/answer"):
        outlast.commit(UpdateSession(id, "t", {STATE: a_state().text()}, space=BUDGETS))
    return outlast


def test_budgets_are_listed_with_what_is_left(busy):
    header, first, second, *_ = busy("budgets").out.splitlines()
    assert header.split() == [
        "BUDGET", "LIMIT", "ALLOWS", "SPENT", "RESERVED", "LEFT", "WAITING",
    ]  # fmt: skip
    assert first.split() == ["run:r-1/answer", "usd", "5", "4", "0.75", "0.25", "r-1"]
    assert second.split() == ["tokens", "1,000", "300", "250", "450"]


def test_budgets_as_json(busy):
    first, _ = busy("budgets", "--json").json["budgets"]
    assert first == {
        "id": "run:r-1/answer", "name": "answer", "run": "r-1", "key": None, "session": None,
        "limits": {"usd": 5, "tokens": 1000}, "spent": {"usd": 4, "tokens": 300},
        "reserved": {"usd": 0.75, "tokens": 250}, "left": {"usd": 0.25, "tokens": 450},
        "waiting": ["r-1"], "raised_by": None,
    }  # fmt: skip


def test_budgets_are_listed_in_pages(busy):
    first = busy("budgets", "--limit", "1", "--json").json
    assert [one["id"] for one in first["budgets"]] == ["run:r-1/answer"]
    assert "there are more: --after run:r-1/answer" in busy("budgets", "--limit", "1").err
    second = busy("budgets", "--limit", "1", "--after", first["next"], "--json").json
    assert ([one["id"] for one in second["budgets"]], second["next"]) == (["run:r-2/answer"], None)
    one = busy("budgets", "--prefix", "run:r-2/", "--json").json
    assert [found["id"] for found in one["budgets"]] == ["run:r-2/answer"]


def test_store_without_budgets(outlast):
    outlast.commit()
    assert outlast("budgets").err == "outlast: no budgets were used lately.\n"


def test_damaged_budget_is_reported_beside_the_others(busy):
    busy.commit(UpdateSession("run:x/answer", "t", {STATE: "[]"}, space=BUDGETS))
    answer = busy("budgets")
    assert "run:r-1/answer" in answer.out
    assert "budget run:x/answer is damaged. It counts as used up" in answer.err


@pytest.mark.parametrize(
    ("limit", "message"),
    [("usd", "write NAME=AMOUNT"), ("usd=much", "write NAME=AMOUNT")],
)
def test_impossible_limit_is_a_usage_error(outlast, limit, message):
    answer = outlast("decide", "r-1", "budget:answer", "--limit", limit)
    assert answer.code == 2
    assert message in " ".join(answer.err.split())
