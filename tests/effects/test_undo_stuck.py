"""Undoing with effects that are open, and with compensations that fail."""

import asyncio
import itertools

import pytest
from outside import Refused, book, fail, outside, put, say, wire
from undo_tools import LONG, decide, dies_in_the_act, failing, one_act, parked, trip

from outlast import (
    KEY,
    Happened,
    RunCancelled,
    UnknownEffect,
    effect,
    workflow,
)


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()


# -- what is open


@workflow
async def beside(kind: str) -> None:
    """It fails while nobody knows what came of `x`: its act has raised just before."""
    await put("first")
    act = {"book": book, "put": put, "say": say, "wire": wire}[kind]
    await asyncio.gather(act("x"), failing(2.4))


def cancel_then_run(world, call) -> None:
    """What a process died of is cancelled before anybody goes on with it."""

    async def main(app):
        await app.cancel("run", "enough")
        run = await app.start(call, id="run")
        await run.result(timeout=LONG)

    world.do(main)


def raises(*, after: bool) -> None:
    """The act raises, and nobody can tell from that whether it happened."""
    (outside.lost if after else outside.broken).add("+x")


both_ways = pytest.mark.parametrize(
    "after", [False, True], ids=["before it happened", "after it happened"]
)


@both_ways
def test_open_verifiable_effect_is_compensated_only_if_it_happened(world, after):
    raises(after=after)
    with pytest.raises(ValueError, match="sibling"):
        world.run(beside("book"))
    assert outside.log == ["+first", *["+x"] * after, "?x", *["-x"] * after, "-first"]
    assert outside.attempts["x"] == 1


@both_ways
def test_effect_left_open_by_a_death_is_verified_before_undo(world, after):
    dies_in_the_act(world, one_act("book"), after=after)
    with pytest.raises(RunCancelled):
        cancel_then_run(world, one_act("book"))
    assert outside.log == ["+first", *["+x"] * after, "?x", *["-x"] * after, "-first"]
    assert outside.attempts["x"] == 1


def test_undo_verifies_only_when_the_act_must_be_over(world):
    dies_in_the_act(world, one_act("book"), after=False)
    at = world.clock()
    with pytest.raises(RunCancelled):
        cancel_then_run(world, one_act("book"))
    (intent,) = [one for one in world.journal() if one.kind == "intent" and one.key == "book#1"]
    (closed,) = [one for one in world.journal() if one.kind == "step" and one.key == "book#1"]
    assert closed.at >= intent.at + 10 + 5
    assert closed.at < at + 16


@both_ways
def test_open_idempotent_effect_is_repeated_to_be_compensated(world, after):
    raises(after=after)

    async def main(app):
        run = await app.start(beside("put"), id="run")
        while not world.row().undoing:
            await asyncio.sleep(0.1)
        outside.broken.clear()
        outside.lost.clear()
        await run.result(timeout=LONG)

    with pytest.raises(ValueError, match="sibling"):
        world.do(main)
    assert outside.log == ["+first", "+x", "-x", "-first"]
    assert outside.attempts["x"] == 2
    assert len(outside.keys["+x"]) == 1


@both_ways
def test_open_idempotent_effect_is_repeated_after_a_death(world, after):
    dies_in_the_act(world, one_act("put"), after=after)
    with pytest.raises(RunCancelled):
        cancel_then_run(world, one_act("put"))
    assert outside.log == ["+first", "+x", "-x", "-first"]
    assert outside.attempts["x"] == 2


@both_ways
def test_open_idempotent_effect_without_compensation_is_left(world, after):
    raises(after=after)
    with pytest.raises(ValueError, match="sibling"):
        world.run(beside("say"))
    assert outside.log == ["+first", *["+x"] * after, "-first"]
    assert outside.attempts["x"] == 1


def test_open_idempotent_effect_without_compensation_is_left_after_a_death(world):
    dies_in_the_act(world, one_act("say"), after=False)
    with pytest.raises(RunCancelled):
        cancel_then_run(world, one_act("say"))
    assert outside.log == ["+first", "-first"]
    assert outside.attempts["x"] == 1


def test_unknown_effect_parks_the_undo_before_older_effects(world):
    raises(after=True)
    reason = parked(world, beside("wire"))
    assert reason.startswith("unknown: wire#1")
    assert "outlast decide run" in reason
    assert "--compensate" not in reason, "it is being undone already"
    assert (world.status(), world.row().undoing is not None) == ("parked", True)
    assert outside.undone == []


@pytest.mark.parametrize("did", [True, False])
def test_decision_during_an_undo_is_followed(world, did):
    raises(after=did)
    parked(world, beside("wire"))
    outside.lost.clear()
    world.restart()
    decide(world, "wire", **({"happened": "wired x"} if did else {"did_not": True}))
    with pytest.raises(ValueError, match="sibling"):
        world.run(beside("wire"))
    assert outside.undone == [*["-x"] * did, "-first"]
    assert outside.attempts["x"] == 1, "it is not done only to be undone"
    assert outside.told == ["wired x"] * did


def test_inconclusive_verify_parks_the_undo(world):
    raises(after=True)
    outside.broken.add("?x")
    assert parked(world, beside("book")).startswith("unknown: book#1: verify could not tell")
    asked = outside.log.count("?x")
    assert asked == 5
    world.do(lambda app: app.resume("run"))
    assert "verify could not tell" in parked(world, beside("book"))
    assert outside.log.count("?x") == 2 * asked
    outside.broken.clear()
    world.do(lambda app: app.retry("run"))
    with pytest.raises(ValueError, match="sibling"):
        world.run(beside("book"))
    assert outside.undone == ["-x", "-first"]


def test_returning_run_resolves_an_open_effect(world):
    @workflow
    async def loose() -> str:
        await put("a")
        asyncio.create_task(book("x", 50.0))  # its own timeout cuts it
        await asyncio.sleep(1)
        return "done"

    assert world.run(loose()) == "done"
    assert outside.log == ["+a", "?x"]
    assert world.status() == "done"


# -- stuck


def test_failing_compensation_is_retried_with_backoff(world):
    times = []

    @effect(timeout=5, idempotent=True)
    async def lend() -> str:
        return "x"

    @lend.compensate(backoff=10, backoff_max=25)
    async def give_back(what: str) -> None:
        times.append(world.clock())
        if len(times) < 5:
            raise ConnectionError

    @workflow
    async def borrow() -> None:
        await lend()
        await fail()

    with pytest.raises(ValueError):
        world.run(borrow())
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert len(pauses) == 4
    assert 5 <= pauses[0] <= 10
    assert all(10 <= pause <= 25 for pause in pauses[1:])


def test_failed_compensation_parks_the_run_with_instructions(world):
    told = []
    world.app._lifecycle.hooks["parked"] = told.append
    outside.broken.add("-b")
    reason = parked(world)
    assert reason.startswith("stuck: undo:put#1")
    assert "ConnectionError: -b" in reason
    assert "`outlast retry run`" in reason
    assert "`outlast decide run" in reason
    assert outside.attempts["-b"] == 1 + 2, "the first, and its retries"
    assert outside.log == ["+a", "+b", "+c", "step", "-c"], "what is older waits for it"
    assert [(info.id, info.status) for info in told] == [("run", "parked")]


@pytest.mark.parametrize("how", ["retry", "resume"])
def test_retry_continues_a_stuck_undo(world, how):
    outside.broken.add("-b")
    parked(world)
    world.restart()
    outside.attempts.clear()
    world.do(lambda app: getattr(app, how)("run"))
    assert parked(world).startswith("stuck: undo:put#1")
    assert outside.attempts["-b"] > 1, "its attempts are counted from 0 again"
    outside.broken.clear()
    world.do(lambda app: getattr(app, how)("run"))
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]
    assert outside.done == ["+a", "+b", "+c"]


def test_compensation_done_by_hand_is_not_repeated(world):
    outside.broken.add("-b")
    parked(world)
    decide(world, "undo:put#1", happened=None)
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-a"]
    infos = world.do(lambda app: app.effects("run"))
    assert {info.state for info in infos} == {"undone"}


def test_compensation_can_be_named_by_its_own_name_too(world):
    outside.broken.add("-b")
    parked(world)
    with pytest.raises(UnknownEffect):
        decide(world, "unbook", happened=None)
    decide(world, "take", happened=None)
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())


def test_compensation_that_did_not_happen_is_done_again(world):
    outside.broken.add("-b")
    parked(world)
    outside.broken.clear()
    decide(world, "take", did_not=True)
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_decide_compensate_is_refused_during_an_undo(world):
    outside.broken.add("-b")
    parked(world)
    with pytest.raises(Exception, match="already being compensated"):
        decide(world, "take", compensate=True)
    assert world.status() == "parked"


def test_interrupted_non_idempotent_compensation_parks_the_run(world):
    acts = []

    @effect(timeout=5, idempotent=True)
    async def lend() -> str:
        return "x"

    @lend.compensate(idempotent=False)
    async def give_back(what: str) -> None:
        acts.append(what)
        await asyncio.sleep(3)

    @workflow
    async def borrow() -> None:
        await lend()
        await fail()

    world.die(borrow(), until=lambda: acts == ["x"])
    assert parked(world, borrow()).startswith("stuck: undo:lend#1")
    assert acts == ["x"]
    decide(world, "give_back", happened=None)
    with pytest.raises(ValueError):
        world.run(borrow())
    assert acts == ["x"]


def test_compensation_with_a_verify_is_verified(world):
    acts = []

    @effect(timeout=5, idempotent=True)
    async def lend() -> str:
        return "x"

    @lend.compensate(idempotent=False)
    async def give_back(what: str, key: str = KEY) -> None:
        acts.append(key)
        await asyncio.sleep(3)

    @give_back.verify
    async def is_back(key: str) -> Happened[None] | None:
        return Happened(None) if key in acts else None

    @workflow
    async def borrow() -> None:
        await lend()
        await fail()

    world.die(borrow(), until=lambda: len(acts) == 1)
    with pytest.raises(ValueError):
        world.run(borrow())
    assert len(acts) == 1


def test_compensation_that_is_refused_is_stuck_not_skipped(world):
    """One of its `failed_on` says that it did not happen: then it is still to be done."""

    @effect(timeout=5, idempotent=True)
    async def lend() -> str:
        return "x"

    tries = []

    @lend.compensate(failed_on=Refused, retries=2)
    async def give_back(what: str) -> None:
        tries.append(what)
        raise Refused("closed")

    @workflow
    async def borrow() -> None:
        await lend()
        await fail()

    assert parked(world, borrow()).startswith("stuck: undo:lend#1")
    assert len(tries) == 3


def test_timed_out_compensation_is_retried(world):
    tries = []

    @effect(timeout=5, idempotent=True)
    async def lend() -> str:
        return "x"

    @lend.compensate(timeout=20)
    async def give_back(what: str) -> None:
        tries.append(what)
        await asyncio.sleep(1000 if len(tries) == 1 else 1)

    @workflow
    async def borrow() -> None:
        await lend()
        await fail()

    with pytest.raises(ValueError):
        world.run(borrow())
    assert len(tries) == 2
