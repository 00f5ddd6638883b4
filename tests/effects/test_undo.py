"""A run that fails, is cancelled or times out is undone, newest effect first."""

import asyncio

import pytest
from outside import Refused, book, fail, outside, put, say, sput, work
from undo_tools import LONG, failing, trip

from outlast import (
    KEY,
    RunCancelled,
    RunTimeout,
    effect,
    sleep,
    workflow,
)


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()


@workflow(timeout=60)
async def timed() -> None:
    await book("a")
    await put("b")
    await sleep(LONG)


def cancelled(world, call, after: float, why: str = "enough"):
    """Cancel the run this many seconds after its start, and wait for its end."""

    async def main(app):
        run = await app.start(call, id="run")
        await asyncio.sleep(after)
        await app.cancel("run", why)
        with pytest.raises(RunCancelled, match=why):
            await run.result(timeout=LONG)

    world.do(main)


# -- how it ends


def test_failed_run_is_undone_newest_first(world):
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.log == ["+a", "+b", "+c", "step", "-c", "-b", "-a"]
    assert (world.status(), world.row().undoing) == ("failed", None)


def test_exception_of_the_workflow_undoes_the_run(world):
    with pytest.raises(LookupError, match="own"):
        world.run(trip("raise"))
    assert outside.undone == ["-c", "-b", "-a"]


def test_run_that_is_cancelled_is_undone_and_ends_as_cancelled(world):
    cancelled(world, trip("wait"), 60)
    assert outside.log == ["+a", "+b", "+c", "step", "-c", "-b", "-a"]
    assert (world.status(), world.row().reason) == ("cancelled", "enough")


def test_timed_out_run_is_undone(world):
    with pytest.raises(RunTimeout):
        world.run(timed())
    assert outside.log == ["+a", "+b", "-b", "-a"]
    assert world.status() == "failed"


def test_later_callers_see_the_same_outcome(world):
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    world.restart()
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_finished_run_is_not_undone(world):
    assert world.run(trip("return")) == "ticket a,put b,ticket c"
    assert outside.undone == []
    assert "undoing" not in world.kinds()


def test_run_without_effects_settles_directly(world):
    @workflow
    async def plain() -> None:
        await work("x")
        await fail()

    with pytest.raises(ValueError):
        world.run(plain())
    assert world.kinds() == ["step", "step"]


def test_run_without_compensations_settles_directly(world):
    @workflow
    async def plain() -> None:
        await say("x")
        await fail()

    with pytest.raises(ValueError):
        world.run(plain())
    assert world.kinds() == ["intent", "step", "step"]


def test_undo_is_recorded_and_replays(world):
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


def test_compensation_receives_result_arguments_and_keys(world):
    with pytest.raises(ValueError):
        world.run(trip())
    (ticket, effect_key, own_key), (other, *_) = outside.told
    assert (ticket, other) == ("ticket c", "ticket a")
    assert effect_key == outside.keys["+c"][0]
    assert own_key not in (effect_key, outside.told[1][2])


def test_compensation_key_is_stable_across_restarts(world):
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


def test_compensation_may_take_the_result_alone(world):
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


def test_effect_that_did_not_happen_is_not_compensated(world):
    @workflow
    async def one() -> None:
        await book("a")
        await book("refused")

    with pytest.raises(Refused):
        world.run(one())
    assert outside.log == ["+a", "-a"]


def test_effect_that_was_cancelled_before_it_acted_is_not_compensated(world):
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


def test_act_ends_before_its_cancelled_run_is_undone(world):
    @workflow
    async def one() -> None:
        await book("a", 5.0)

    cancelled(world, one(), 2)
    assert outside.log == ["+a", "-a"]


def test_acts_of_a_failed_gather_end_and_are_undone(world):
    @workflow
    async def one() -> None:
        await asyncio.gather(book("a", 5.0), book("b", 1.0), failing(3))

    with pytest.raises(ValueError):
        world.run(one())
    assert outside.done == ["+b", "+a"]
    assert sorted(outside.undone) == ["-a", "-b"]
    assert outside.left == []


def test_effect_with_an_unrecordable_result_is_undone(world):
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
