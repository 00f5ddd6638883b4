"""The thread that ends a process, in real processes that hang."""

import signal

import pytest
from programs_signals import executing


def ended(folder, how, *, fork: bool = True) -> tuple[int, list[str]]:
    """Return the exit code and the words of a program. Each would hang for a minute without the deadline."""
    with executing(folder, "by_deadline.py", how, fork=fork) as program:
        return program.wait(), program.said[1:]


@pytest.mark.parametrize("how", ["join", "loop", "locked", "handler", "computing", "past"])
def test_a_hung_process_ends_with_the_code_it_was_armed_with(tmp_path, how):
    assert ended(tmp_path, how) == (75, [])


@pytest.mark.parametrize("how", ["gil", "finalizing"])
def test_sigalrm_ends_a_process_in_which_no_thread_can_run(tmp_path, how):
    fork = how != "finalizing"  # forks of the zygote do not take their interpreter apart
    assert ended(tmp_path, how, fork=fork)[0] == -signal.SIGALRM


def test_arming_again_can_only_make_it_earlier(tmp_path):
    assert ended(tmp_path, "earlier")[0] == 75


def test_a_process_goes_on_after_disarm(tmp_path):
    assert ended(tmp_path, "disarmed") == (4, ["timer 0.0"])


def test_exit_timer_can_be_armed_again_after_disarm(tmp_path):
    assert ended(tmp_path, "armed-anew")[0] == 75


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("own-timer", ["timer True", "timer True"]),
        ("own-timer-later", ["timer True", "timer True"]),
        ("own-handler", ["timer True"]),
    ],
)
def test_a_timer_of_the_program_is_left_alone(tmp_path, how, said):
    assert ended(tmp_path, how) == (4, said)


def test_a_forked_child_is_not_armed_and_can_arm_its_own(tmp_path):
    code, said = ended(tmp_path, "forked")
    assert code == 9
    assert said[-2:] == ["timer 0.0", "refused"]
