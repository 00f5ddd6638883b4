"""The tables of durable steps: ratios are of one round, goals are met by the median, and who failed is named and spoils nothing."""

from __future__ import annotations

from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import pytest
from bench.contest.ask import Failed
from bench.contest.contenders import Contender
from bench.contest.servers import stores
from bench.contest.stepcases import CASES, HUNDRED, Case
from bench.contest.steps import _fastest, _one, figures
from bench.contest.stepspage import plots, ratios, tables
from bench.contest.tables import Goal, goals_table, last_line, spread_words, table
from bench.spread import Spread
from bench_samples import steps_found


def rate(result: dict[str, Any]) -> float:
    return float(result["steps_per_second"])


def in_all_rounds(found: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [result for results in found["rounds"] for result in results if result["case"] == key]


def rows_of(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table after this heading, without head and rule."""
    lines = iter(text.partition(heading)[2].splitlines())
    rows = list(
        takewhile(
            lambda line: line.startswith("|"),
            dropwhile(lambda line: not line.startswith("|"), lines),
        )
    )
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_a_ratio_is_made_of_two_figures_of_the_same_round() -> None:
    ours = [{"case": "a", "runs": 1, "steps_per_second": speed} for speed in (100.0, 10.0)]
    theirs = [{"case": "b", "runs": 1, "steps_per_second": speed} for speed in (50.0, 5.0)]
    rounds = [list(pair) for pair in zip(ours, theirs, strict=True)]
    assert ratios(rounds, "a", "b", 1, rate) == [2.0, 2.0]


def test_a_round_in_which_one_of_them_failed_has_no_ratio() -> None:
    failed = {"case": "b", "runs": 1, "failed": "no answer"}
    rounds = [
        [{"case": "a", "runs": 1, "steps_per_second": 1.0}, failed],
        [
            {"case": "a", "runs": 1, "steps_per_second": 8.0},
            {"case": "b", "runs": 1, "steps_per_second": 2.0},
        ],
    ]
    assert ratios(rounds, "a", "b", 1, rate) == [4.0]


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [([49.0, 51.0, 60.0], "met"), ([60.0, 49.0, 20.0], "**MISSED**"), ([], "not measured")],
)
def test_a_goal_is_met_by_the_median(samples: list[float], verdict: str) -> None:
    assert Goal("a", 50, samples).verdict == verdict
    assert verdict in goals_table([Goal("a", 50, samples)])


def test_the_goals_of_the_tables_follow_the_figures() -> None:
    found = steps_found()
    assert "MISSED" not in tables(found)
    for result in in_all_rounds(found, "DBOS on Postgres"):
        result["steps_per_second"] *= 10
    goals = {row[0]: row[-1] for row in rows_of(tables(found), "## Goals")}
    assert goals["100 runs on Postgres: steps/s, Outlast / DBOS"] == "**MISSED**"
    assert goals["100 runs on SQLite: steps/s, Outlast / DBOS"] == "met"


def test_limit_of_a_goal_is_printed_only_where_the_goal_is_missed() -> None:
    found = steps_found()
    assert "What limits" not in tables(found)
    for result in in_all_rounds(found, "DBOS on Postgres"):
        result["steps_per_second"] *= 10
    ours = in_all_rounds(found, "Outlast on Postgres")
    for result in ours:
        result.update(steps_per_second=16_000, cpu_us=50.0)
    text = tables(found)
    assert (
        "**What limits Postgres**: one process uses at most one core. 50.0 µs of CPU per step, 16,000 times per second, is 80 % of it."
        in text
    )
    assert "What limits SQLite" not in text


def test_entrant_that_failed_everywhere_is_named_with_its_error() -> None:
    found = steps_found()
    for result in in_all_rounds(found, "DBOS on SQLite"):
        result.clear()
        result.update(
            case="DBOS on SQLite",
            runs=HUNDRED.runs,
            variant="",
            load=0.1,
            failed="Trace\nOSError: disk | full",
        )
    text = tables(found)
    speeds = {(row[0], row[1]): row[2:] for row in rows_of(text, "## Steps per second")}
    assert speeds["SQLite", "DBOS"][2] == "failed"
    assert all(
        "failed" not in cell
        for who, row in speeds.items()
        for cell in row
        if who != ("SQLite", "DBOS")
    )
    assert rows_of(text, "## What failed")[0][-1] == "Trace … OSError: disk / full"
    assert "failed" in plots(found)["benchmarks-steps-sqlite.svg"]
    assert "not measured" in text


def test_entrant_that_failed_in_one_round_has_the_figures_of_the_others() -> None:
    found = steps_found()
    first = in_all_rounds(found, "LangGraph on SQLite")[0]
    first["failed"] = "no answer in 300 s"
    text = tables(found)
    assert all("failed" not in cell for row in rows_of(text, "## Steps per second") for cell in row)
    assert rows_of(text, "## What failed")[0][-1] == "no answer in 300 s"


def test_plots_are_drawn_even_if_everybody_failed() -> None:
    found = steps_found()
    for results in found["rounds"]:
        for result in results:
            result["failed"] = "no"
    assert all("failed" in svg for svg in plots(found).values())
    assert "failed" in tables(found)


def test_the_fastest_configuration_that_did_not_fail_takes_part() -> None:
    tried = [
        {"case": "a", "runs": 1, "variant": "x", "steps_per_second": 3.0},
        {"case": "a", "runs": 1, "variant": "y", "steps_per_second": 5.0},
        {"case": "a", "runs": 1, "variant": "z", "failed": "no"},
        {"case": "a", "runs": 100, "variant": "x", "steps_per_second": 9.0},
        {"case": "a", "runs": 100, "variant": "y", "failed": "no"},
    ]
    assert _fastest(tried) == {("a", False): "y", ("a", True): "x"}


def test_a_contender_that_fails_is_a_result_and_no_end(tmp_path: Path) -> None:
    program = tmp_path / "broken_driver.py"
    program.write_text("raise OSError('no space left')")
    case = Case(Contender("broken", str(program), ("sqlite",)), "sqlite", "broken", "SQLite")
    told: list[str] = []
    with stores(tmp_path, set()) as opened:
        result = _one(case, HUNDRED, opened, told.append)
    assert (result["case"], result["runs"]) == ("broken on SQLite", 100)
    assert "no space left" in result["failed"]
    assert "no space left" in told[-1]


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case.key for case in CASES}) == len(CASES)


ANSWER = {
    "steps": 4_000, "seconds": 2.0, "cpu_seconds": 0.4, "server_cpu_seconds": 0.2, "gaps": [0.001] * 98 + [0.5, 0.7], "recorded": 2_000,
    "settings": {"journal_mode": "wal", "synchronous": "2"}, "config": "",
}  # fmt: skip


def test_an_answer_is_rates_costs_and_ranks() -> None:
    found = figures(ANSWER, HUNDRED)
    assert (found["steps_per_second"], found["cpu_us"], found["server_cpu_us"]) == (2_000, 100, 50)
    assert (found["p50_ms"], found["p99_ms"]) == (1.0, 500.0)


def test_steps_that_are_not_in_the_store_are_a_failure() -> None:
    with pytest.raises(Failed, match="1999 of 2000"):
        figures(ANSWER | {"recorded": 1_999}, HUNDRED)


@pytest.mark.parametrize(
    "settings",
    [{"synchronous": "1"}, {"fsync": "off"}, {"synchronous_commit": "off"}, {"appendonly": "no"}],
)
def test_a_store_that_is_less_durable_than_the_others_is_a_failure(
    settings: dict[str, str],
) -> None:
    with pytest.raises(Failed, match="not durable"):
        figures(ANSWER | {"settings": settings}, HUNDRED)


def test_a_spread_is_its_median_and_its_range_where_there_is_one() -> None:
    assert spread_words(Spread.of([3.0, 1.0, 2.0]), "x") == "2.00x (1.00 to 3.00)"
    assert spread_words(Spread.of([2.0])) == "2.00"
    assert spread_words(None) == "-"


def test_a_table_is_as_wide_in_every_line() -> None:
    lines = table(["a", "b"], [["1", "a long cell"], ["22", ""]]).splitlines()
    assert len({len(line) for line in lines}) == 1


def test_last_line_of_a_failure_fits_a_table_cell() -> None:
    assert last_line([]) == "no words"
    assert "|" not in last_line(["a | b\n\nc | d\n"])
