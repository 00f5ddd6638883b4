"""A command that nothing can be gathered with is written on the event loop, if the store lets it."""

import asyncio
import math
import threading

import pytest
from writer_tools import WatchedStore, submit, with_writer

from outlast.errors import StoreUnavailable
from outlast.store.commands import Submitted
from outlast.store.protocol import CommitUnknown
from outlast.store.writer import loop_commits
from support.waiting import wait_until_async


class TriedStore(WatchedStore):
    """Also watches the commits that are tried on the loop, and lets a test refuse or fail them."""

    def __init__(self):
        super().__init__()
        self.tried = []
        """The thread of each attempt."""
        self.answers = []
        """What to do in place of an attempt: return None, or raise this error."""

    def try_commit(self, commands):
        self.tried.append(threading.current_thread())
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, CommitUnknown):
                super().try_commit(commands)
            if answer is not None:
                raise answer
            return None
        return super().try_commit(commands)


@pytest.fixture
def store(monkeypatch):
    # However slow the disk of this machine is.
    monkeypatch.setattr(loop_commits, "SECONDS_MAX", math.inf)
    store = TriedStore()
    store.open()
    yield store
    store.close()


async def heard(writer, command):
    """Enqueue a command alone, and return what its callback is called with."""
    answer = asyncio.get_running_loop().create_future()
    writer.enqueue(command, lambda *told: answer.set_result(told), alone=True)
    assert not answer.done(), "the callback is not called from enqueue"
    return await answer


def test_lone_command_is_written_once_on_the_loop(store):
    async def scenario(writer):
        command, outcome = await heard(writer, submit("r"))
        assert (command, outcome.new) == (submit("r"), True)
        assert (writer.batches, writer.commands) == (1, 1)

    with_writer(store, scenario)
    assert store.tried == [threading.main_thread()]
    assert store.calls == [], "the thread writes nothing again"


@pytest.mark.parametrize("refused", [None, StoreUnavailable("locked")], ids=["busy", "error"])
def test_lone_command_that_cannot_be_written_at_once_is_left_to_the_thread(store, refused):
    store.answers = [refused]

    async def scenario(writer):
        _, outcome = await heard(writer, submit("r"))
        assert isinstance(outcome, Submitted)
        assert outcome.new

    with_writer(store, scenario)
    assert store.calls == [[submit("r")]]


def test_unknown_outcome_on_the_loop_is_recovered_before_anything_else(store):
    """The commit took effect, so the command that is repeated finds its own run."""
    store.answers = [CommitUnknown("the answer was lost")]

    async def scenario(writer):
        _, outcome = await heard(writer, submit("r"))
        assert (outcome.row.id, outcome.new) == ("r", True)
        assert store.calls == ["recover", [submit("r")]]
        # The thread delivers an answer before it rests.
        await wait_until_async(lambda: writer._idle)
        await heard(writer, submit("next"))

    with_writer(store, scenario)
    assert len(store.tried) == 2, "commands are written on the loop again"


def test_lone_command_does_not_overtake_what_is_queued(store):
    async def scenario(writer):
        told = []
        writer.enqueue(submit("first"), lambda command, _: told.append(command.id))
        _, outcome = await heard(writer, submit("second"))
        assert outcome.new
        assert told == ["first"]

    with_writer(store, scenario)
    assert store.tried == []
