"""Processes wake each other at once, where a poll (every 30 s) cannot help; and where nobody can be woken, a poll does."""

from statistics import median

import pytest
from process_tools import look, until

COUNT = 15
AT_ONCE_SECONDS = 1.0
"""Far from the 30 s of the poll, and bearable on a noisy machine; the figures are printed."""


def report(what, seconds):
    print(
        f"{what}: median {median(seconds) * 1000:.1f} ms, worst {max(seconds) * 1000:.1f} ms of {len(seconds)}"
    )
    assert len(seconds) == COUNT
    assert median(seconds) < AT_ONCE_SECONDS


def test_a_message_reaches_a_receive_in_another_process_without_polling(spawn):
    receiver, sender = spawn("wake.py", "receives", COUNT), spawn("wake.py", "sends", COUNT)
    report("from send to the step after the receive", receiver.result())
    assert sender.wait() == 0, sender.errors()


def test_the_end_of_a_run_reaches_who_waits_for_it_in_another_process_without_polling(spawn):
    finisher, waiter = spawn("wake.py", "finishes", COUNT), spawn("wake.py", "awaits", COUNT)
    report("from the last step to the result elsewhere", waiter.result())
    assert finisher.wait() == 0, finisher.errors()


def test_a_cancel_reaches_a_run_in_another_process_without_polling(spawn):
    waiter, canceller = spawn("wake.py", "waits", COUNT), spawn("wake.py", "cancels", COUNT)
    for program in (waiter, canceller):
        assert program.wait() == 0, program.errors()
    report("from cancel to the workflow", waiter.said())


def test_an_end_that_comes_while_its_waiter_reads_the_store_is_not_missed(spawn):
    finisher, waiter = spawn("wake.py", "finishes", 3), spawn("wake.py", "awaits", 3, 30, "slow")
    seconds = waiter.result(6)
    print(f"a slow reader had the result after {max(seconds):.3f} s")
    assert max(seconds) < AT_ONCE_SECONDS
    assert finisher.wait() == 0, finisher.errors()


def test_a_cancel_that_comes_while_the_run_is_taken_over_is_not_missed(spawn, tmp_path):
    first = spawn("wake.py", "is_killed", 1)
    until((tmp_path / "waits-0").exists)
    first.kill()
    heir, canceller = spawn("wake.py", "takes_over", 1, 1, "slow"), spawn("wake.py", "cancels_meanwhile", 1)
    assert heir.wait(10) == 0, heir.errors()
    (tmp_path / "ended").touch()
    assert canceller.wait() == 0, canceller.errors()
    assert look(tmp_path / "outlast.db").runs["waiter-0"]["status"] == "cancelled"


@pytest.mark.parametrize(
    ("who", "other"),
    [("receives", "sends"), ("awaits", "finishes"), ("waits", "cancels")],
    ids=["a message", "a result", "a cancel"],
)
def test_where_nobody_can_be_woken_polling_alone_is_enough(spawn, who, other):
    programs = [spawn("wake.py", role, 3, 0.2, "deaf") for role in (who, other)]
    for program in programs:
        assert program.wait(6) == 0, program.errors()
