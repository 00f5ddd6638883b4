"""The pages of the queue and of death, made from results: also where a contender failed, was slow, or lost something."""

import pytest
from bench.contest import deathpage, queue
from bench.contest.ask import Failed

NUMBERS = {
    "jobs_per_second": 1000.0, "put_per_second": 5000.0, "pickup_p50_ms": 5.0, "pickup_p95_ms": 9.0, "idle_percent": 0.4, "idle_server_percent": 0.1,
}  # fmt: skip


def measured(*rates: float) -> dict:
    return {
        "rounds": [
            {**NUMBERS, "round": number, "jobs_per_second": rate}
            for number, rate in enumerate(rates)
        ],
        "failed": [],
        "config": "as it comes",
    }


def row(page: str, name: str) -> list[str]:
    """The cells of the first row of this name."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_goal_is_met_by_the_median_of_the_rounds() -> None:
    page = queue.tables(
        {
            "Outlast, items (Postgres)": measured(1000, 3000, 900),
            "pgqueuer (Postgres)": measured(800, 1000, 1000),
        }
    )
    assert row(page, "jobs/s: Outlast, items (Postgres) / pgqueuer (Postgres)") == [
        "≥ 1x",
        "1.25x (0.900 to 3.00)",
        "met",
    ]
    page = queue.tables(
        {"Outlast, items (Postgres)": measured(900), "pgqueuer (Postgres)": measured(1000)}
    )
    assert row(page, "jobs/s: Outlast, items (Postgres) / pgqueuer (Postgres)")[2] == "**MISSED**"


def test_a_ratio_is_of_one_round_also_where_another_round_failed() -> None:
    ours, theirs = measured(1000, 3000), measured(2000, 2000)
    del ours["rounds"][0]
    page = queue.tables({"Outlast, items (Postgres)": ours, "pgqueuer (Postgres)": theirs})
    assert row(page, "jobs/s: Outlast, items (Postgres) / pgqueuer (Postgres)") == [
        "≥ 1x",
        "1.50x",
        "met",
    ]
    del theirs["rounds"][1]
    page = queue.tables({"Outlast, items (Postgres)": ours, "pgqueuer (Postgres)": theirs})
    assert row(page, "jobs/s: Outlast, items (Postgres) / pgqueuer (Postgres)")[2] == "not measured"


def test_a_contender_that_failed_is_in_the_table_with_its_last_words_and_the_others_are_too() -> (
    None
):
    found = {
        "Outlast, items (Postgres)": measured(1000),
        "pgqueuer (Postgres)": {
            "rounds": [],
            "failed": ["pgqueuer submit: exit 1: Traceback\n  a | b\nOSError: no"],
            "config": "",
        },
    }
    page = queue.tables(found)
    assert (
        row(page, "pgqueuer (Postgres)")[0]
        == "failed: pgqueuer submit: exit 1: Traceback … OSError: no"
    )
    assert row(page, "Outlast, items (Postgres)")[0] == "1,000"
    assert row(page, "jobs/s: Outlast, items (Postgres) / pgqueuer (Postgres)")[2] == "not measured"
    assert "failed" in queue.plots(found)["benchmarks-queue.svg"]
    assert queue.plots({"pgqueuer (Postgres)": found["pgqueuer (Postgres)"]}) == {}


def test_pick_up_counts_only_where_every_job_began_once() -> None:
    ledger = "begin 0 0 a 10.5\nend 0 0 a 10.6\nbegin 1 0 a 11.25\nend 1 0 a 11.3\n"
    assert queue.pickups(ledger, [10.0, 11.0]) == [0.25, 0.5]
    for wrong in (ledger + "begin 1 0 b 12.0\n", "begin 0 0 a 10.5\n"):
        with pytest.raises(Failed, match="these began"):
            queue.pickups(wrong, [10.0, 11.0])


TRIAL = {
    "exit_seconds": 1.0, "exit_status": 0, "killed": False, "age_seconds": 3.0, "begun_after": 0, "finished_by_a": 0, "taken": 10, "taken_first": 0.5,
    "taken_last": 0.75, "finished": 10, "finished_last": 6.0, "redone_seconds": 3.2, "done_twice": 0, "unfinished": 0, "left": 0,
}  # fmt: skip
NEVER = {
    **TRIAL,
    "taken": 0,
    "taken_first": None,
    "taken_last": None,
    "finished": 0,
    "finished_last": None,
    "unfinished": 10,
    "left": 10,
}


def death(scenario: str = "killed", **entrants: list[dict]) -> dict:
    return {"trials": {scenario: entrants}, "takeover": {}}


def test_seconds_are_those_of_the_rounds() -> None:
    page = deathpage.tables(
        death(
            one=[
                TRIAL,
                {**TRIAL, "taken_last": 1.25},
                {**TRIAL, "taken_last": 1.0, "redone_seconds": 5.0},
            ]
        )
    )
    assert row(page, "one") == ["0.500 s", "1.00 (0.750 to 1.25) s", "3 to 5 s", "0", "6.00 s", "0"]


def test_jobs_that_the_store_still_has_are_stuck_and_those_that_it_has_not_are_lost() -> None:
    page = deathpage.tables(
        death(stuck=[NEVER], lost=[{**NEVER, "left": 0}], both=[{**NEVER, "left": 4}])
    )
    assert row(page, "stuck")[0] == "**not within 60 s**"
    assert [row(page, name)[-1] for name in ("stuck", "lost", "both")] == [
        "**10 stuck**",
        "**10 lost**",
        "**4 stuck, 6 lost**",
    ]


def test_worker_that_finishes_everything_has_handed_over_nothing() -> None:
    alone = {
        **TRIAL,
        "taken": 0,
        "taken_first": None,
        "taken_last": None,
        "finished_by_a": 10,
        "begun_after": 20,
        "exit_seconds": 3.5,
    }
    page = deathpage.tables(
        death("fits", one=[alone], other=[{**TRIAL, "killed": True, "exit_status": -9}])
    )
    assert row(page, "one")[:5] == ["3.50 s", "0", "20", "A finished all", "A finished all"]
    assert row(page, "other")[:2] == ["**killed**", "-9"]


def test_rounds_that_differ_are_told_apart() -> None:
    alone = {**TRIAL, "taken": 0, "taken_first": None, "taken_last": None, "finished_by_a": 10}
    page = deathpage.tables(
        death("fits", some=[alone, TRIAL, {**TRIAL, "killed": True}], never=[TRIAL, NEVER])
    )
    assert row(page, "some")[0] == "**killed** in 1 of 3"
    assert row(page, "some")[3] == "0.500 s; A finished all in 1 of 3"
    assert row(page, "never")[3] == "**not within 60 s** in 1 of 2"
    assert "| some x 3 " in page


def test_a_silent_worker_that_finishes_its_jobs_when_it_is_back_was_not_taken_over() -> None:
    back = {**NEVER, "finished_by_a": 10, "finished": 10, "finished_last": 64.5}
    page = deathpage.tables(death("silent", one=[back]))
    assert row(page, "one") == [
        "**not within 60 s**",
        "**not within 60 s**",
        "3 s",
        "0",
        "64.5 s",
        "**10 stuck**",
    ]


def test_a_contender_that_failed_in_all_rounds_says_so_and_in_some_is_measured_by_the_others() -> (
    None
):
    failed = {"failed": "x: its worker does not start: Traceback\nImportError: no module"}
    page = deathpage.tables(death(broken=[failed, failed], half=[failed, TRIAL]))
    assert (
        row(page, "broken")[0]
        == "failed: x: its worker does not start: Traceback … ImportError: no module"
    )
    assert row(page, "half")[0] == "0.500 s"
    assert page.count("- kill -9: half: x: its worker does not start") == 1
    assert page.count("- kill -9: broken: x: its worker does not start") == 2
    drawn = deathpage.plots(death(broken=[failed], half=[TRIAL], never=[NEVER]))[
        "benchmarks-death.svg"
    ]
    assert "failed" in drawn and "not within 60 s" in drawn
    assert deathpage.plots(death(broken=[failed])) == {}


def test_the_goal_of_a_death_is_that_of_its_ninety_fifth_percentile() -> None:
    laps = [0.3] * 19
    page = deathpage.tables(
        {
            "trials": {},
            "takeover": {
                "fast": {"seconds": [*laps, 0.9]},
                "slow": {"seconds": [*laps, 1.1]},
                "gone": {"seconds": laps, "failed": "nobody"},
            },
        }
    )
    assert row(page, "fast") == ["20", "0.300 s", "0.900 s", "0.900 s", "met"]
    assert row(page, "slow")[-1] == "**MISSED**"
    assert row(page, "gone")[1:2] + row(page, "gone")[-1:] == ["failed: nobody", "**MISSED**"]
