"""A run that fails, is cancelled, times out or is abandoned leaves nothing behind: what it did is undone, newest first."""

import asyncio
import itertools
import json

import pytest
from outside import Refused, book, fail, outside, put, say, sput, take, unbook, wire, work

from outlast import (
    KEY,
    Happened,
    RunCancelled,
    RunParked,
    RunTimeout,
    UnknownEffect,
    WrongStatus,
    effect,
    receive,
    sleep,
    workflow,
)
from outlast.replay import undo
from outlast.store.verbs import Release

LONG = 1e5


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()


@workflow
async def trip(then: str = "fail") -> str:
    tickets = [await book("a"), await put("b"), await book("c")]
    await work("step")
    if then == "fail":
        await fail("no such luck")
    if then == "raise":
        raise LookupError("own")
    if then == "wait":
        await sleep(LONG)
    return ",".join(tickets)


@workflow(timeout=60)
async def timed() -> None:
    await book("a")
    await put("b")
    await sleep(LONG)


async def failing(after: float) -> None:
    await asyncio.sleep(after)
    await fail("sibling")


def decide(world, effect: str, **said) -> None:
    """As a person does who has looked at it."""

    async def main(app):
        ones = [one for info in await app.effects("run") for one in (info, info.undo) if one is not None]
        (meant,) = [one for one in ones if effect in (one.place, one.effect)]
        await app.decide("run", effect, intent=meant.intent, **said)

    world.do(main)


def cancelled(world, call, after: float, why: str = "enough"):
    """Cancelled so many seconds after its start, and over."""

    async def main(app):
        run = await app.start(call, id="run")
        await asyncio.sleep(after)
        await app.cancel("run", why)
        with pytest.raises(RunCancelled, match=why):
            await run.result(timeout=LONG)

    world.do(main)


def parked(world, call=None, id: str = "run") -> str:
    """Until it is parked: why."""
    with pytest.raises(RunParked) as caught:
        world.run(call if call is not None else trip(), id=id)
    return caught.value.reason


# -- how it ends


def test_a_run_that_fails_is_undone_newest_first_and_fails_as_it_would_have(world):
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.log == ["+a", "+b", "+c", "step", "-c", "-b", "-a"]
    assert (world.status(), world.row().undoing) == ("failed", None)


def test_what_the_workflow_itself_raises_is_undone_like_what_a_step_raises(world):
    with pytest.raises(LookupError, match="own"):
        world.run(trip("raise"))
    assert outside.undone == ["-c", "-b", "-a"]


def test_a_run_that_is_cancelled_is_undone_and_ends_as_cancelled(world):
    cancelled(world, trip("wait"), 60)
    assert outside.log == ["+a", "+b", "+c", "step", "-c", "-b", "-a"]
    assert (world.status(), world.row().reason) == ("cancelled", "enough")


def test_a_run_that_takes_too_long_is_undone_and_ends_by_its_timeout(world):
    with pytest.raises(RunTimeout):
        world.run(timed())
    assert outside.log == ["+a", "+b", "-b", "-a"]
    assert world.status() == "failed"


def test_the_verdict_is_the_same_for_whoever_asks_later_and_elsewhere(world):
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    world.restart()
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_a_run_that_is_done_is_not_undone(world):
    assert world.run(trip("return")) == "ticket a,put b,ticket c"
    assert outside.undone == []
    assert "undoing" not in world.kinds()


def test_a_run_without_effects_is_settled_as_before(world):
    @workflow
    async def plain() -> None:
        await work("x")
        await fail()

    with pytest.raises(ValueError):
        world.run(plain())
    assert world.kinds() == ["step", "step"]


def test_a_run_whose_effects_have_no_compensation_is_settled_as_before(world):
    @workflow
    async def plain() -> None:
        await say("x")
        await fail()

    with pytest.raises(ValueError):
        world.run(plain())
    assert world.kinds() == ["intent", "step", "step"]


def test_what_was_undone_is_on_record_and_replays_to_the_same_end(world):
    with pytest.raises(ValueError):
        world.run(trip())
    kinds = world.kinds()
    assert kinds[kinds.index("undoing") :] == ["undoing", "child"] + ["intent", "step"] * 3
    assert [key for key in world.keys() if key.startswith("undo:")][1::2] == [
        "undo:book#2",
        "undo:put#1",
        "undo:book#1",
    ]
    log = list(outside.log)
    with pytest.raises(ValueError, match="no such luck"):
        world.replays(trip())
    assert outside.log == log
    infos = world.do(lambda app: app.effects("run"))
    assert [(info.effect, info.state) for info in infos] == [
        ("book", "undone"),
        ("put", "undone"),
        ("book", "undone"),
    ]


# -- what a compensation is given


def test_a_compensation_has_the_result_the_arguments_it_names_and_both_keys(world):
    with pytest.raises(ValueError):
        world.run(trip())
    (ticket, effect_key, own_key), (other, *_) = outside.told
    assert (ticket, other) == ("ticket c", "ticket a")
    assert effect_key == outside.keys["+c"][0]
    assert own_key not in (effect_key, outside.told[1][2])


def test_a_compensation_that_is_tried_again_has_the_same_key_in_every_life(world):
    keys = []

    @effect(timeout=5, idempotent=True)
    async def lend(what: str) -> str:
        return what

    @lend.compensate(backoff=30)
    async def give_back(what: str, key: str = KEY) -> None:
        keys.append(key)
        if len(keys) < 4:
            raise ConnectionError

    @workflow
    async def borrow() -> None:
        await lend("x")
        await fail()

    world.die(borrow(), until=lambda: len(keys) == 2)
    with pytest.raises(ValueError):
        world.run(borrow())
    assert len(keys) == 4
    assert len(set(keys)) == 1


def test_a_compensation_without_a_key_and_with_the_result_alone_is_called_with_that(world):
    given = []

    @effect(timeout=5, failed_on=Refused)
    async def lend(what: str, to: str = "you") -> dict[str, str]:
        return {"what": what}

    @lend.compensate
    def give_back(loan: dict[str, str], to: str) -> None:
        given.append((loan, to))

    @workflow
    async def borrow() -> None:
        await lend("x")
        await lend("y", to="me")
        await fail()

    with pytest.raises(ValueError):
        world.run(borrow())
    assert given == [({"what": "y"}, "me"), ({"what": "x"}, "you")]


def test_sync_effects_are_undone_too(world):
    @workflow
    async def threads() -> None:
        await sput.aio("a")
        await put("b")
        await sput.aio("c")
        await fail()

    with pytest.raises(ValueError):
        world.run(threads())
    assert outside.log == ["+a", "+b", "+c", "-c", "-b", "-a"]


# -- what did not happen


def test_an_effect_that_did_not_happen_is_not_compensated(world):
    @workflow
    async def one() -> None:
        await book("a")
        await book("refused")

    with pytest.raises(Refused):
        world.run(one())
    assert outside.log == ["+a", "-a"]


def test_an_effect_that_was_cancelled_before_it_acted_is_not_compensated(world):
    @workflow
    async def one() -> None:
        await book("a")
        waiting = asyncio.create_task(book("b"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await fail()

    with pytest.raises(ValueError):
        world.run(one())
    assert outside.log == ["+a", "-a"]


def test_an_effect_that_acts_while_its_run_is_cancelled_ends_first_and_is_undone(world):
    @workflow
    async def one() -> None:
        await book("a", 5.0)

    cancelled(world, one(), 2)
    assert outside.log == ["+a", "-a"]


def test_of_a_gather_that_fails_what_is_under_way_ends_and_is_undone(world):
    @workflow
    async def one() -> None:
        await asyncio.gather(book("a", 5.0), book("b", 1.0), failing(3))

    with pytest.raises(ValueError):
        world.run(one())
    assert outside.done == ["+b", "+a"]
    assert sorted(outside.undone) == ["-a", "-b"]
    assert outside.left == []


def test_an_effect_whose_result_cannot_be_recorded_happened_and_is_undone(world):
    given = []

    @effect(timeout=5)
    async def odd() -> str:
        outside.apply("+odd")
        return object()  # type: ignore[return-value]

    @odd.compensate
    async def even(result: str | None) -> None:
        given.append(result)
        outside.apply("-odd")

    @workflow
    async def one() -> None:
        await odd()

    with pytest.raises(Exception, match="cannot be recorded"):
        world.run(one())
    assert (outside.log, given) == (["+odd", "-odd"], [None])


# -- what is open


@workflow
async def one_act(kind: str) -> None:
    await put("first")
    await {"book": book, "put": put, "say": say, "wire": wire}[kind]("x")
    await fail()


@workflow
async def beside(kind: str) -> None:
    """It fails while nobody knows what came of `x`: its act has raised just before."""
    await put("first")
    act = {"book": book, "put": put, "say": say, "wire": wire}[kind]
    await asyncio.gather(act("x"), failing(2.4))


def dies_in_the_act(world, call, *, after: bool) -> None:
    """The process dies in the middle of the act, before or after it has happened."""
    if after:
        world.die(call, until=lambda: "+x" in outside.log)
    else:
        world.die(call, until=lambda: outside.attempts["x"] == 1)


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


both_ways = pytest.mark.parametrize("after", [False, True], ids=["before it happened", "after it happened"])


@both_ways
def test_what_can_be_verified_is_compensated_only_if_it_happened_and_never_done_again(world, after):
    raises(after=after)
    with pytest.raises(ValueError, match="sibling"):
        world.run(beside("book"))
    assert outside.log == ["+first", *["+x"] * after, "?x", *["-x"] * after, "-first"]
    assert outside.attempts["x"] == 1


@both_ways
def test_the_same_where_a_death_has_left_it_open_and_the_run_is_cancelled_then(world, after):
    dies_in_the_act(world, one_act("book"), after=after)
    with pytest.raises(RunCancelled):
        cancel_then_run(world, one_act("book"))
    assert outside.log == ["+first", *["+x"] * after, "?x", *["-x"] * after, "-first"]
    assert outside.attempts["x"] == 1


def test_nothing_is_asked_before_the_act_can_no_longer_be_under_way(world):
    dies_in_the_act(world, one_act("book"), after=False)
    at = world.clock()
    with pytest.raises(RunCancelled):
        cancel_then_run(world, one_act("book"))
    (intent,) = [one for one in world.journal() if one.kind == "intent" and one.key == "book#1"]
    (closed,) = [one for one in world.journal() if one.kind == "step" and one.key == "book#1"]
    assert closed.at >= intent.at + 10 + 5
    assert closed.at < at + 16


@both_ways
def test_what_is_idempotent_and_has_a_compensation_acts_under_its_key_to_be_compensated(world, after):
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
def test_so_it_does_after_a_death_too(world, after):
    dies_in_the_act(world, one_act("put"), after=after)
    with pytest.raises(RunCancelled):
        cancel_then_run(world, one_act("put"))
    assert outside.log == ["+first", "+x", "-x", "-first"]
    assert outside.attempts["x"] == 2


@both_ways
def test_what_is_idempotent_and_has_no_compensation_is_left_as_it_is(world, after):
    raises(after=after)
    with pytest.raises(ValueError, match="sibling"):
        world.run(beside("say"))
    assert outside.log == ["+first", *["+x"] * after, "-first"]
    assert outside.attempts["x"] == 1


def test_so_it_is_after_a_death_too(world):
    dies_in_the_act(world, one_act("say"), after=False)
    with pytest.raises(RunCancelled):
        cancel_then_run(world, one_act("say"))
    assert outside.log == ["+first", "-first"]
    assert outside.attempts["x"] == 1


def test_what_nobody_can_tell_is_asked_of_a_person_before_anything_older_is_undone(world):
    raises(after=True)
    reason = parked(world, beside("wire"))
    assert reason.startswith("unknown: wire#1")
    assert "outlast decide run" in reason
    assert "--compensate" not in reason, "it is being undone already"
    assert (world.status(), world.row().undoing is not None) == ("parked", True)
    assert outside.undone == []


@pytest.mark.parametrize("did", [True, False])
def test_what_a_person_decides_in_the_middle_of_an_undo_is_gone_by(world, did):
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


def test_a_verify_that_cannot_tell_parks_the_undo_and_a_resume_asks_anew(world):
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


def test_a_run_that_returns_with_an_effect_still_open_has_it_resolved_and_is_done_without_undoing(world):
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


def test_a_compensation_that_raises_is_tried_again_with_growing_pauses(world):
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


def test_a_compensation_that_fails_for_good_parks_the_run_and_says_what_to_do(world):
    told = []
    world.app._hooks["parked"] = told.append
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
def test_a_stuck_run_is_undone_further_when_it_is_asked_for_again(world, how):
    outside.broken.add("-b")
    parked(world)
    world.restart()
    outside.attempts.clear()
    world.do(lambda app: getattr(app, how)("run"))
    assert parked(world).startswith("stuck: undo:put#1")
    assert outside.attempts["-b"] > 1, "its attempts are counted anew"
    outside.broken.clear()
    world.do(lambda app: getattr(app, how)("run"))
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]
    assert outside.done == ["+a", "+b", "+c"]


def test_a_compensation_that_was_done_by_hand_is_not_done_again_and_the_rest_is_undone(world):
    outside.broken.add("-b")
    parked(world)
    decide(world, "undo:put#1", happened=None)
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-a"]
    infos = world.do(lambda app: app.effects("run"))
    assert {info.state for info in infos} == {"undone"}


def test_a_compensation_can_be_named_by_its_own_name_too(world):
    outside.broken.add("-b")
    parked(world)
    with pytest.raises(UnknownEffect):
        decide(world, "unbook", happened=None)
    decide(world, "take", happened=None)
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())


def test_a_compensation_that_did_not_happen_is_done_again(world):
    outside.broken.add("-b")
    parked(world)
    outside.broken.clear()
    decide(world, "take", did_not=True)
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_a_run_that_is_being_undone_is_not_asked_to_compensate(world):
    outside.broken.add("-b")
    parked(world)
    with pytest.raises(Exception, match="being undone already"):
        decide(world, "take", compensate=True)
    assert world.status() == "parked"


def test_a_compensation_that_is_not_idempotent_and_whose_act_died_is_for_a_person(world):
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


def test_a_compensation_with_a_verify_is_verified(world):
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


def test_a_compensation_that_is_refused_is_stuck_not_skipped(world):
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


def test_a_compensation_that_takes_too_long_is_cut_and_tried_again(world):
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


# -- one way, in whatever process


def test_once_it_is_being_undone_it_cannot_be_cancelled(world):
    outside.broken.add("-b")

    async def main(app):
        await app.start(trip(), id="run")
        while "-c" not in outside.log:
            await asyncio.sleep(0.1)
        with pytest.raises(WrongStatus, match="being undone"):
            await app.cancel("run")
        with pytest.raises(WrongStatus):
            await app.retry("run")

    world.do(main)
    parked(world)
    with pytest.raises(WrongStatus, match="being undone"):
        world.do(lambda app: app.cancel("run"))


@pytest.mark.parametrize("reached", ["-c", "-b", "-a"])
def test_a_death_in_the_middle_leaves_the_rest_to_the_next_process(world, reached):
    world.die(trip(), until=lambda: reached in outside.log)
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]
    assert world.executed.get("work", 0) == 0, "the workflow is not executed again"


def test_deaths_one_after_the_other_lead_to_the_same_end(world):
    world.die(trip(), until=lambda: "step" in outside.log)
    world.die(trip(), until=lambda: "-c" in outside.log)
    world.die(trip(), until=lambda: "-b" in outside.log)
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]
    assert outside.done == ["+a", "+b", "+c"]


def test_an_orderly_end_in_the_middle_leaves_the_rest_to_the_next_process(world):
    async def main(app):
        await app.start(trip(), id="run")
        while "-c" not in outside.log:
            await asyncio.sleep(0.1)

    world.do(main)
    assert world.row().undoing is not None
    world.restart()
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_a_drain_in_the_middle_begins_no_compensation_and_leaves_the_rest_to_the_next_process(world):
    async def main(app):
        await app.start(trip(), id="run")
        while outside.attempts["-b"] == 0:
            await asyncio.sleep(0.1)
        return (await app.drain("test")).left

    assert world.do(main) == []
    assert outside.undone == ["-c", "-b"], "what acts is not cut"
    assert (world.status(), world.row().undoing is not None) == ("queued", True)
    world.restart()
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_it_is_undone_by_whoever_claims_it_also_by_another_process(file_world):
    """The life that ended does not undo: it gives the run back, ahead of new work."""
    called = []

    async def main(app):
        async with file_world.another(worker=True, workflows=[queued], ramp=0, poll=0.5) as other:
            run = await app.submit(queued(), id="run")
            with pytest.raises(ValueError):
                await run.result(timeout=LONG)
            called.append(other.executed["queued_act"])

    @workflow
    async def queued() -> None:
        await put("a")
        await fail()

    file_world.do(main)
    assert outside.log == ["+a", "-a"]
    assert file_world.row().lives == 2


def test_the_workflow_is_not_called_again_and_its_arguments_are_not_read(world):
    """Code and arguments may have changed beyond recognition: what was done can be undone all the same."""
    world.die(trip(), until=lambda: "-c" in outside.log)
    calls = []

    @workflow(name="trip")
    async def changed(then: str = "fail") -> str:
        calls.append(then)
        raise AssertionError

    async def main(app):
        return await (await app.start(changed(), id="run")).result(timeout=LONG)

    with pytest.raises(ValueError, match="no such luck"):
        world.do(main)
    assert (outside.undone, calls) == (["-c", "-b", "-a"], [])


def test_arguments_that_cannot_be_read_any_more_do_not_stop_an_undo(world):
    world.die(trip("fail"), until=lambda: "-c" in outside.log)

    @workflow(name="trip")
    async def changed(when: int) -> str:
        raise AssertionError

    async def main(app):
        app._open.know(changed)
        row = world.row()
        app._open.adoption.of(row, changed)
        return await app.get(changed, "run").result(timeout=LONG)

    with pytest.raises(ValueError, match="no such luck"):
        world.do(main)
    assert outside.undone == ["-c", "-b", "-a"]


def test_the_deadline_of_the_run_does_not_cut_its_undo(world):
    @workflow(timeout=30)
    async def slow() -> None:
        await book("a")
        await book("b")
        await sleep(24.9)
        await fail()

    with pytest.raises(ValueError):
        world.run(slow())
    assert outside.undone == ["-b", "-a"]


def test_messages_timers_and_children_of_the_workflow_do_not_disturb_it(world):
    @workflow
    async def busy() -> None:
        await put("a")
        waits = [asyncio.create_task(receive("word", str)), asyncio.create_task(asyncio.sleep(1000))]
        await asyncio.sleep(5)
        await put("b")
        await fail()
        await asyncio.gather(*waits)

    async def main(app):
        run = await app.start(busy(), id="run")
        await app.send("run", "word", "x")
        await run.result(timeout=LONG)

    with pytest.raises(ValueError):
        world.do(main)
    assert outside.undone == ["-b", "-a"]


# -- code that is not there


def forget(monkeypatch, *effects) -> None:
    """This process's code does not have them."""
    from outlast.replay import errand

    known = {name: ones for name, ones in errand._known.items() if name not in {one.name for one in effects}}
    monkeypatch.setattr(errand, "_known", known)


@pytest.mark.parametrize("missing", [book, unbook], ids=["the effect", "its compensation"])
def test_what_this_code_does_not_have_is_left_to_others_and_done_when_it_comes_back(
    world, monkeypatch, missing
):
    world.die(trip(), until=lambda: "-c" in outside.log)
    given_back = []
    with monkeypatch.context() as patched:
        forget(patched, missing)
        if missing is unbook:
            patched.setattr(book, "compensation", None)

        async def main(app):
            commit = app._open.store.commit
            app._open.store._store.commit = lambda verbs: (  # what it gives back
                given_back.extend(verb for verb in verbs if isinstance(verb, Release)),
                commit(verbs),
            )[1]
            await app.start(trip(), id="run")
            await asyncio.sleep(60)

        try:
            world.do(main)
        finally:
            del world.store.commit
    assert len(given_back) >= 5
    assert {(verb.delay, verb.interrupted) for verb in given_back[:-1]} == {(undo.BACK_SECONDS, False)}
    assert world.status() in ("queued", "running")
    assert outside.undone == ["-c", "-b"]
    world.restart()
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_what_nobody_has_the_code_for_is_stuck_after_a_while_and_a_retry_waits_anew(world, monkeypatch):
    world.die(trip(), until=lambda: "-c" in outside.log)
    with monkeypatch.context() as patched:
        forget(patched, put, take)
        before = world.clock()
        reason = parked(world)
        assert reason.startswith("stuck:")
        assert "put" in reason
        assert undo.UNKNOWN_SECONDS <= world.clock() - before <= undo.UNKNOWN_SECONDS * 1.1
        world.clock.advance(10_000)
        world.do(lambda app: app.retry("run"))
        before = world.clock()
        parked(world)
        assert world.clock() - before >= undo.UNKNOWN_SECONDS
    world.do(lambda app: app.retry("run"))
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_a_run_that_began_long_ago_waits_as_long_for_the_code(world, monkeypatch):
    @workflow
    async def old() -> None:
        await put("a")
        await sleep(10 * undo.UNKNOWN_SECONDS)
        await fail()

    world.die(old(), after=20)
    world.clock.advance(10 * undo.UNKNOWN_SECONDS)
    with monkeypatch.context() as patched:
        forget(patched, put, take)

        async def main(app):
            await app.start(old(), id="run")
            await asyncio.sleep(undo.UNKNOWN_SECONDS / 2)

        world.do(main)
        assert (world.status(), world.row().undoing is not None) == ("queued", True)
    with pytest.raises(ValueError):
        world.run(old())
    assert outside.log == ["+a", "-a"]


def test_who_has_the_code_for_the_rest_does_the_rest(world, monkeypatch):
    """What was undone already, here `c`, needs no code any more."""
    world.die(trip(), until=lambda: "-c" in outside.log)
    with monkeypatch.context() as patched:
        forget(patched, book, unbook)

        async def main(app):
            await app.start(trip(), id="run")
            await asyncio.sleep(60)

        world.do(main)
    assert outside.undone == ["-c", "-b"]


def test_recorded_arguments_that_the_code_cannot_read_any_more_are_stuck_and_mended_by_a_retry(
    world, monkeypatch
):
    """The effect takes another type by now."""
    world.die(trip(), until=lambda: "-c" in outside.log)
    other = {}
    with monkeypatch.context() as patched:

        @effect(timeout=5, idempotent=True, name="put")
        async def changed(label: int, seconds: float, key: str = KEY) -> int:
            return label

        @changed.compensate(name="take")
        async def untouched(it: int, label: int) -> None:
            other["called"] = True

        from outlast.replay import errand

        patched.setitem(errand._known, "put", {put.code: changed})
        reason = parked(world)
        assert reason.startswith("stuck:")
        assert "outlast retry run" in reason
    monkeypatch.undo()
    from outlast.replay import errand

    errand._known["put"] = {put.code: put}
    world.do(lambda app: app.retry("run"))
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]
    assert other == {}


# -- a person decides to undo


def test_decide_compensate_confirms_and_undoes_the_run(world):
    dies_in_the_act(world, one_act("wire"), after=True)
    reason = parked(world, one_act("wire"))
    assert "unknown: wire#1" in reason
    decide(world, "wire", compensate=True, result="wired x")
    with pytest.raises(RunCancelled, match="somebody decided"):
        world.run(one_act("wire"))
    assert outside.log == ["+first", "+x", "-x", "-first"]
    assert outside.told == ["wired x"]


def test_a_parked_run_that_is_cancelled_is_undone_without_its_code(world):
    dies_in_the_act(world, one_act("wire"), after=False)
    parked(world, one_act("wire"))
    decide(world, "wire", did_not=True)
    world.die(one_act("wire"), until=lambda: outside.attempts["x"] == 2)
    parked(world, one_act("wire"))
    assert world.do(lambda app: app.cancel("run", "enough")) == "queued"
    assert "unknown: wire#1" in parked(world, one_act("wire"))
    decide(world, "wire", did_not=True)
    with pytest.raises(RunCancelled, match="enough"):
        world.run(one_act("wire"))
    assert outside.log == ["+first", "-first"]
    assert (
        json.loads(next(one.value for one in world.journal() if one.kind == "undoing"))["status"]
        == "cancelled"
    )
