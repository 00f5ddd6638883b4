"""Processes wake each other without polling; where notification does not work, polling is enough.

The poll is an hour, so a wait that ends within the time-out of the tests cannot be due to it.
"""

import pytest

from support.snapshots import read_snapshot

COUNT = 5


def test_message_wakes_a_receive_in_another_process(spawn):
    receiver, sender = spawn("wake.py", "receives", COUNT), spawn("wake.py", "sends", COUNT)
    assert receiver.result() == COUNT
    assert sender.wait() == 0, sender.errors


def test_end_of_a_run_wakes_a_waiter_in_another_process(spawn):
    finisher, waiter = spawn("wake.py", "finishes", COUNT), spawn("wake.py", "awaits", COUNT)
    assert waiter.result() == COUNT
    assert finisher.wait() == 0, finisher.errors


def test_cancel_reaches_a_run_in_another_process(spawn):
    waiter, canceller = spawn("wake.py", "waits", COUNT), spawn("wake.py", "cancels", COUNT)
    for program in (waiter, canceller):
        assert program.wait() == 0, program.errors
    assert waiter.messages == ["cancelled"] * COUNT


def test_end_of_a_run_is_noticed_while_its_waiter_reads_the_store(spawn):
    finisher, waiter = spawn("wake.py", "finishes", 3), spawn("wake.py", "awaits", 3, 3600, "slow")
    assert waiter.result() == 3
    assert finisher.wait() == 0, finisher.errors


def test_cancel_is_noticed_while_another_process_takes_over_the_run(spawn, tmp_path):
    first = spawn("wake.py", "is_killed", 1)
    first.wait_until((tmp_path / "waits-0").exists)
    first.kill()
    successor, canceller = (
        spawn("wake.py", "takes_over", 1, 1, "slow"),
        spawn("wake.py", "cancels_meanwhile", 1),
    )
    assert successor.wait() == 0, successor.errors
    (tmp_path / "ended").touch()
    assert canceller.wait() == 0, canceller.errors
    assert read_snapshot(tmp_path / "outlast.db").runs["waiter-0"]["status"] == "cancelled"


@pytest.mark.parametrize(
    ("waits", "acts"),
    [("receives", "sends"), ("awaits", "finishes"), ("waits", "cancels")],
    ids=["message", "result", "cancel"],
)
def test_polling_is_enough_where_no_process_can_be_woken(spawn, waits, acts):
    programs = [spawn("wake.py", role, 2, 0.2, "deaf") for role in (waits, acts)]
    for program in programs:
        assert program.wait() == 0, program.errors
