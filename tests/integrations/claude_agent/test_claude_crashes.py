"""A turn that crashes at any write ends as if undisturbed."""

import os
import select
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from messages_api import MessagesApi, blocks
from support_claude import AGENT, APPROVAL, NOTES, PLAN, RESULT, handle, options, script

from outlast.testing import VirtualLoop
from support.agent_programs import call_of, calls_of
from support.crash_points import crash_at_some

# A crash leaves the pipes of the program to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def time_stands_still_while_a_program_lives(monkeypatch) -> Iterator[None]:
    """The virtual clock does not know that another process works. A crash ends that, too."""
    start: Any = VirtualLoop.subprocess_exec
    living: list[tuple[VirtualLoop, int]] = []

    def end_programs(*, but_of: VirtualLoop | None = None) -> None:
        for loop, pid in living:
            if loop is not but_of:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        living[:] = [one for one in living if one[0] is but_of]

    async def subprocess_exec(self: VirtualLoop, *args: Any, **kwargs: Any) -> Any:
        # Each life has a loop of its own. A sub-agent's program lives beside its agent's.
        end_programs(but_of=self)
        transport, protocol = await start(self, *args, **kwargs)
        living.append((self, transport.get_pid()))
        self.run_in_executor(None, _wait_for_end, transport.get_pid())
        return transport, protocol

    monkeypatch.setattr(VirtualLoop, "subprocess_exec", subprocess_exec)
    yield
    end_programs()


def _wait_for_end(pid: int) -> None:
    with suppress(ProcessLookupError):
        end = os.pidfd_open(pid)
        try:
            select.select([end], [], [])
        finally:
            os.close(end)


@pytest.fixture
def calls(tmp_path) -> Iterator[list[str]]:
    """Give the agent a program and a model, and return what they note."""
    noted: list[str] = []
    histories: list[list[dict]] = []

    def remembered(messages: list[dict]) -> list[dict]:
        histories.append(messages)
        return script(messages)

    with MessagesApi(remembered) as api:
        AGENT.append(options(api, tmp_path))
        NOTES.append(noted.append)
        yield noted
        NOTES.remove(noted.append)
        AGENT.pop()
        assert not api.errors, api.errors
    assert any(blocks(messages, "tool_result") for messages in histories)


async def approve(app: Any) -> None:
    await app.send("crash", APPROVAL, True, message_id="1")


def check(calls: list[str]) -> None:
    """Every call was made, at most those in flight at the crash twice, and the effect once."""
    made = Counter(map(call_of, calls))
    assert set(made) | {"bash"} == set(calls_of(PLAN))
    # A model call is asked again if a crash comes between its response and a tool of the program.
    assert made.total() <= len(made) + 2, made
    keys = {line for line in calls if line.startswith("refund")}
    assert len(keys) == 1, keys


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.extended)])
def test_turn_survives_a_crash_at_every_write(calls, every):
    report = crash_at_some(
        handle("hi"),
        every=every,
        outside=approve,
        fresh=calls.clear,
        check=lambda: check(calls),
    )
    assert report.result == RESULT
