"""The page on agent frameworks, made from results."""

from __future__ import annotations

from typing import Any

from bench.contest.adapters import outcomes, tables

TURN = {"version": "1.2.3", "plain_ms": 2.0, "durable_ms": 2.5}


def measured(
    ours: list[float], theirs: list[float], turn: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return results with these milliseconds per superstep, round by round, of all savers."""
    laps = {
        f"{store}: {saver}": [[elapsed, 0.5] for elapsed in rounds]
        for store in ("SQLite", "Postgres")
        for saver, rounds in (("Outlast", ours), ("LangGraph", theirs))
    }
    one = {"threads": 1, "rounds": len(ours), "supersteps": 30, "laps": laps}
    return {
        "turns": {"Pydantic AI": turn or TURN},
        "savers": {"versions": {"langgraph": "9.8.7"}, "threads": [one]},
    }


def row(page: str, name: str) -> list[str]:
    """Return the cells of the first row with this name."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_ratio_compares_savers_in_the_same_round() -> None:
    """The median of the ratios, not the ratio of the medians, which would be 1.5."""
    page = tables(measured([1.0, 2.0, 4.0], [3.0, 2.0, 8.0]))
    assert row(page, "SQLite: Outlast") == ["1.00", "2.00", "0.500", "2.00x (1.00 to 3.00)"]
    assert row(page, "SQLite: LangGraph") == ["2.00", "3.00", "0.500", "-"]


def test_slower_saver_misses_its_goal() -> None:
    found = measured([2.0], [1.0])
    goal = "1 thread on SQLite: LangGraph / Outlast, ms per superstep"
    assert row(tables(found), goal) == ["≥ 1x", "0.500x", "**MISSED**"]
    assert [one.verdict for one in outcomes(found)] == ["**MISSED**", "**MISSED**", "met"]


def test_turn_may_cost_a_millisecond_beyond_the_framework() -> None:
    page = tables(measured([1.0], [1.0]))
    assert row(page, "Pydantic AI 1.2.3") == ["2.00", "2.50", "0.500"]
    slow = measured([1.0], [1.0], {**TURN, "durable_ms": 3.5})
    assert outcomes(slow)[-1].verdict == "**MISSED**"
