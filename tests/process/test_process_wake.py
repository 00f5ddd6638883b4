"""Processes wake each other at once. The poll of the programs is 30 s: a wake-up that is lost fails the test by time."""

from statistics import median

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
