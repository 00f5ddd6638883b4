"""What is read from a ledger: it decides what the page says about others."""

import pytest
from bench.contest.ledger import Attempts, Case

CASE = Case(jobs=2, stages=3, stage_seconds=1.0, opened=102.2, struck=102.5, gone=103.0)
"""Two jobs of two stages of a second each, after one that takes no time; A is struck in the first of the two, after its gate was opened."""
BOTH_IN_FIRST = """\
begin 0 0 a 100.0
begin 1 0 a 100.0
end 0 0 a 100.0
end 1 0 a 100.0
begin 0 1 a 100.0
begin 1 1 a 100.1
"""


def found(rest: str, case: Case = CASE) -> dict:
    return Attempts(BOTH_IN_FIRST + rest).found(case)


def test_job_that_is_not_resumed_is_unfinished() -> None:
    read = found("")
    assert read["unfinished"] == 2 and read["finished"] == 0
    assert read["taken"] == 0 and read["taken_first"] is None and read["taken_last"] is None
    assert read["finished_last"] is None
    assert read["redone_seconds"] == 0  # what has not been begun again is not done again yet
    assert read["age_seconds"] == 2.5


def test_what_was_cut_off_and_is_done_by_another_is_work_done_again() -> None:
    read = found(
        "begin 0 1 b 103.5\nbegin 1 1 b 104.0\nend 0 1 b 104.5\nend 1 1 b 105.0\nbegin 0 2 b 104.5\nend 0 2 b 105.5\nbegin 1 2 b 105.0\nend 1 2 b 106.0\n"
    )
    assert read["taken_first"] == 1.0 and read["taken_last"] == 1.5
    assert read["redone_seconds"] == pytest.approx(
        0.8 + 0.8
    )  # from the opening of the gate until A was gone
    assert read["finished"] == 2 and read["unfinished"] == 0 and read["finished_last"] == 3.5
    assert read["done_twice"] == 0 and read["begun_after"] == 0


def test_stages_that_end_on_a_and_are_handed_over_cost_nothing() -> None:
    read = found(
        "end 0 1 a 103.0\nend 1 1 a 103.1\nbegin 0 2 b 103.2\nend 0 2 b 104.2\nbegin 1 2 b 103.3\nend 1 2 b 104.3\n"
    )
    assert read["redone_seconds"] == 0 and read["done_twice"] == 0
    assert read["finished_by_a"] == 0 and read["taken"] == 2


def test_job_begun_again_at_its_first_stage_counts_as_redone() -> None:
    read = found(
        "end 0 1 a 103.0\nbegin 0 2 a 103.0\n"
        "begin 0 0 b 110.0\nend 0 0 b 110.0\nbegin 0 1 b 110.0\nend 0 1 b 111.0\nbegin 0 2 b 111.0\nend 0 2 b 112.0\n",
        CASE._replace(gone=103.6),
    )
    assert read["done_twice"] == 2  # the one that takes no time, and the one after it
    assert read["redone_seconds"] == pytest.approx(1.0 + 0.6)
    assert read["begun_after"] == 1  # A's second stage of job 0
    assert read["unfinished"] == 1  # job 1 was never taken
    assert read["taken_first"] == 7.5 and read["taken_last"] is None


def test_a_worker_that_finishes_everything_leaves_nothing_to_take_over() -> None:
    read = found(
        "end 0 1 a 103.0\nend 1 1 a 103.1\nbegin 0 2 a 103.0\nbegin 1 2 a 103.1\nend 0 2 a 104.0\nend 1 2 a 104.1\n"
    )
    assert read["finished_by_a"] == 2 and read["taken_last"] is None and read["unfinished"] == 0
    assert read["begun_after"] == 2


def test_what_is_begun_as_the_signal_arrives_is_not_held_against_it() -> None:
    assert found("end 0 1 a 102.52\nbegin 0 2 a 102.53\n")["begun_after"] == 0


def test_a_silent_worker_that_comes_back_and_ends_its_stage_has_done_it_twice() -> None:
    read = found(
        "begin 0 1 b 108.0\nend 0 1 b 109.0\nend 0 1 a 120.0\n", CASE._replace(gone=CASE.struck)
    )
    assert read["done_twice"] == 1
    assert read["redone_seconds"] == pytest.approx(1.0)


def test_a_silent_worker_that_ends_a_job_once_more_was_taken_over_all_the_same() -> None:
    by_b = "".join(
        f"begin {job} {stage} b {107 + stage}.0\nend {job} {stage} b {108 + stage}.0\n"
        for job in (0, 1)
        for stage in (1, 2)
    )
    by_a = "".join(
        f"end {job} 1 a 120.0\nbegin {job} 2 a 120.0\nend {job} 2 a 121.0\n" for job in (0, 1)
    )
    read = found(by_b + by_a, CASE._replace(gone=CASE.struck))
    assert read["finished_by_a"] == 0
    assert read["taken_first"] == read["taken_last"] == 108 - CASE.struck
    assert read["finished_last"] == 110 - CASE.struck and read["done_twice"] == 4


def test_a_line_that_a_death_has_cut_off_is_no_line() -> None:
    assert len(Attempts(BOTH_IN_FIRST + "end 0 1 a 103.").all) == 4
    assert all(
        one.ended is None
        for one in Attempts(BOTH_IN_FIRST + "end 0 1 a 103.").all
        if one.stage == 1
    )


def test_attempts_tell_which_jobs_reached_a_stage_and_where() -> None:
    attempts = Attempts(BOTH_IN_FIRST)
    assert (
        attempts.begun(1, jobs=2)
        and not attempts.begun(2, jobs=2)
        and not attempts.begun(1, jobs=3)
    )
    assert attempts.only("a") and not Attempts(BOTH_IN_FIRST + "begin 0 1 b 103.0\n").only("a")
    assert not attempts.all_over(CASE)
