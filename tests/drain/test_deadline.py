"""The thread that ends a process, in real processes that hang."""

import signal
import time

import pytest
from programs_signals import executing

pytestmark = pytest.mark.timeout(60)


def ended(folder, how, *args) -> tuple[int, list[str], float]:
    with executing(folder, "by_deadline.py", how, *args) as program:
        began = time.monotonic()
        code = program.ended()
        return code, program.said[1:], time.monotonic() - began


@pytest.mark.parametrize("how", ["join", "loop", "locked", "handler", "computing", "past"])
def test_a_process_that_hangs_ends_with_the_code_it_was_armed_with(tmp_path, how):
    code, said, seconds = ended(tmp_path, how)
    assert (code, said) == (75, [])
    assert seconds < 20


def test_the_alarm_ends_it_when_c_code_holds_the_gil(tmp_path):
    code, _, seconds = ended(tmp_path, "gil")
    assert code == -signal.SIGALRM
    assert seconds < 20


def test_the_alarm_ends_it_when_the_interpreter_hangs_on_its_way_out(tmp_path):
    code, _, seconds = ended(tmp_path, "finalizing")
    assert code == -signal.SIGALRM
    assert seconds < 20


def test_arming_again_can_only_make_it_earlier(tmp_path):
    code, _, seconds = ended(tmp_path, "earlier")
    assert code == 75
    assert seconds < 20


def test_a_disarmed_one_lets_the_process_go_on(tmp_path):
    code, said, _ = ended(tmp_path, "disarmed")
    assert (code, said) == (4, ["timer 0.0"])


def test_it_can_be_armed_anew_after_it_was_disarmed(tmp_path):
    assert ended(tmp_path, "armed-anew")[0] == 75


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("own-timer", ["timer True", "timer True"]),
        ("own-timer-later", ["timer True", "timer True"]),
        ("own-handler", ["timer True"]),
    ],
)
def test_a_programs_own_timer_is_left_alone(tmp_path, how, said):
    assert ended(tmp_path, how)[:2] == (4, said)


def test_a_forked_child_is_not_armed_and_can_have_its_own(tmp_path):
    code, said, _ = ended(tmp_path, "forked")
    assert code == 9
    assert said[-2:] == ["timer 0.0", "refused"]  # Python warns before it, of threads
