"""What limits it: from the figures alone, and with what one can do."""

import pytest

from outlast.tools.bench.cpu import Cpu, cpu
from outlast.tools.bench.figures import Spread, Steps
from outlast.tools.bench.limits import limits, ms


def commit(p50: float) -> Spread:
    return Spread(100, p50, p50)


def steps(runs: int, p50: float, used: float, waited: float = 0.0) -> Steps:
    """Of one second."""
    return Steps(runs, 1000, 1.0, Cpu(used, waited), 100, Spread(1000, p50, p50))


QUIET = steps(100, 0.01, 0.3)


def found(
    address: str, commit_ms: float, lone: Steps, hundred: Steps = QUIET
) -> list[tuple[str, str]]:
    return [
        (limit.by, limit.text) for limit in limits(address, commit(commit_ms / 1000), lone, hundred)
    ]


def test_a_lone_step_that_is_mostly_its_commit_is_limited_by_it():
    by, text = found("sqlite:///o.db", 0.6, steps(1, 0.001, 0.9))[0]
    assert by == "commit"
    assert "a step takes 1.00 ms, the smallest commit alone 0.60 ms" in text
    assert "synchronous=normal" in text


def test_a_commit_that_took_longer_by_itself_than_a_step_is_not_shown_as_a_part_of_it():
    by, text = found("sqlite:///o.db", 1.4, steps(1, 0.001, 0.9))[0]
    assert by == "commit"
    assert "a step takes 1.00 ms, no longer than the smallest commit took by itself" in text
    assert "1.40" not in text


def test_the_cpu_of_a_step_is_not_shown_as_a_part_of_a_median_that_is_shorter():
    by, text = found(
        "postgresql://h/d", 0.1, Steps(1, 100, 1.0, Cpu(0.7, 0.0), 100, Spread(100, 0.001, 0.9))
    )[0]
    assert by == "store"
    assert (
        "of the 1.00 ms of a step the smallest commit is 0.10 ms, and this process used 70% of a core"
        in text
    )


def test_synchronous_normal_is_not_suggested_where_it_is_set():
    assert (
        "synchronous"
        not in found("sqlite:///o.db?synchronous=NORMAL", 0.6, steps(1, 0.001, 0.9))[0][1]
    )


def test_a_lone_run_that_keeps_the_process_busy_is_limited_by_its_cpu():
    by, text = found("sqlite:///o.db", 0.2, steps(1, 0.001, 0.9))[0]
    assert by == "cpu"
    assert "90% of a core, 0.90 ms per step" in text


@pytest.mark.parametrize(
    ("address", "what"),
    [("postgresql://h/d", "the server"), ("rediss://h/0", "the server"), ("unix:///r.sock", "the server"), ("file:f", "the disk")],
)  # fmt: skip
def test_otherwise_it_waits_for_the_server_or_the_disk(address, what):
    (lone, text), (hundred, more) = found(address, 0.2, steps(1, 0.001, 0.3))
    assert (lone, hundred) == ("store", "store")
    assert f"waits for {what}:" in text
    assert f"wait for {what}:" in more
    assert "10 steps shared a commit, with 100 commits per second" in more


@pytest.mark.parametrize(
    ("address", "what"),
    [("postgres://h/d", "more worker processes."), ("sqlite:///o.db", "take turns to write"), ("file:f", "this store is for one")],
)  # fmt: skip
def test_a_hundred_runs_that_keep_the_process_busy_are_limited_by_its_cpu(address, what):
    by, text = found(address, 0.2, steps(1, 0.001, 0.3), steps(100, 0.01, 0.95))[1]
    assert by == "cpu"
    assert "95% of a core, 0.95 ms per step" in text
    assert what in text


def test_where_others_have_the_cpus_that_is_said():
    by, text = found("sqlite:///o.db", 0.2, steps(1, 0.001, 0.3), steps(100, 0.01, 0.4, 0.5))[1]
    assert by == "cpu"
    assert "got 40% of a core and could have used 90%" in text
    assert "less other load" in text


def test_in_memory_there_is_nothing_but_cpu():
    assert [by for by, _ in found("memory:", 0.9, steps(1, 0.001, 0.5))] == ["cpu", "cpu"]


def test_waits_of_all_threads_are_added_and_unknown_ones_count_as_zero(tmp_path):
    for number, text in (("1", "5 2000000000 7\n"), ("2", "5 500000000 7\n"), ("3", "")):
        (tmp_path / number).mkdir()
        (tmp_path / number / "schedstat").write_text(text)
    assert cpu(tmp_path).waited == 2.5
    assert cpu(tmp_path / "none").waited == 0.0
    assert Cpu(3.0, 1.0).since(Cpu(1.0, 2.0)) == Cpu(2.0, 0.0)


def test_milliseconds_are_as_exact_as_a_person_wants_them():
    assert [ms(s) for s in (0.0000142, 0.00025, 0.0032, 0.0123, 2.5)] == [
        "0.014 ms",
        "0.25 ms",
        "3.20 ms",
        "12 ms",
        "2,500 ms",
    ]
