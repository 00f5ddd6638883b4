"""What signals mean for the process, by its role and by who handles them."""

import signal
from signal import SIGINT, SIGTERM

import pytest

from outlast.shutdown.process import INTERRUPTED, TRY_AGAIN, ProcessRole, ProcessShutdown

WORKER, COMMAND = ProcessRole.WORKER, ProcessRole.COMMAND
SHARED, PORTAL = ProcessRole.SHARED, ProcessRole.PORTAL


@pytest.fixture
def process(request):
    """A process of the role that the test asks for, with its signal handlers installed."""
    process = ProcessShutdown(request.param, lambda number, at: None)
    process.install(600)
    yield process
    process.restore()


@pytest.fixture
def handled():
    """The program has its own handler for SIGTERM."""
    before = signal.signal(SIGTERM, lambda *_: None)
    yield
    signal.signal(SIGTERM, before)


@pytest.mark.parametrize(
    ("role", "received", "code"),
    [
        (WORKER, [], 0),
        (WORKER, [SIGTERM], 0),
        (WORKER, [SIGINT], INTERRUPTED),
        (WORKER, [SIGTERM, SIGINT], 0),
        (COMMAND, [SIGTERM], TRY_AGAIN),
        (COMMAND, [SIGINT, SIGTERM], INTERRUPTED),
        (SHARED, [SIGTERM], 128 + SIGTERM),
        (SHARED, [SIGINT], INTERRUPTED),
        (PORTAL, [SIGTERM, SIGINT], 128 + SIGTERM),
    ],
)
def test_the_first_signal_decides_the_exit_code(role, received, code):
    process = ProcessShutdown(role, lambda number, at: None)
    process.install(600)
    try:
        for number in received:
            process.note_signal(number)
        assert process.exit_code == code
        assert process.ends == (role.is_owned or bool(received))
    finally:
        process.restore()


@pytest.mark.parametrize("process", [SHARED, PORTAL, WORKER], indirect=True)
def test_only_a_repeated_sigint_expedites(process):
    received = [SIGTERM, SIGTERM, SIGINT, SIGTERM, SIGINT]
    assert [process.note_signal(number) for number in received] == [False] * 4 + [True]


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("process", [SHARED], indirect=True)
def test_a_signal_that_the_program_handles_does_not_end_it(process):
    process.note_signal(SIGTERM)
    assert (process.signal, process.ends) == (SIGTERM, False)
    # The program leaves SIGINT to Python, so this one ends it.
    process.note_signal(SIGINT)
    assert (process.signal, process.ends, process.exit_code) == (SIGINT, True, INTERRUPTED)


@pytest.mark.parametrize("role", list(ProcessRole))
def test_without_handlers_only_an_owned_process_ends_with_its_drain(role):
    process = ProcessShutdown(role, lambda number, at: None)
    assert (process.ends, process.ends_by_signal) == (role in (WORKER, COMMAND), False)
