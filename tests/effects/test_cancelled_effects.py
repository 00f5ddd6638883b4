"""A cancelled effect that has begun to act delivers its outcome; one that has not never acts."""

import asyncio

import pytest
from bank import EFFECTS, RECEIPT, SPAN, Refused, bank, mail, pay

from outlast import RunParked, effect, sleep, step, workflow

NOT = "not done"


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)


@step
async def fail(after: float) -> None:
    await asyncio.sleep(after)
    raise ValueError("another one failed")


@step
async def work(label: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return label


@workflow
async def by_timeout(fx: str, when: float) -> str:
    try:
        async with asyncio.timeout(when):
            return await EFFECTS[fx]("rent", 3.0)
    except TimeoutError:
        return NOT


@workflow
async def by_wait_for(fx: str, when: float) -> str:
    try:
        return await asyncio.wait_for(EFFECTS[fx]("rent", 3.0), when)
    except TimeoutError:
        return NOT


@workflow
async def by_cancel(fx: str, when: float) -> str:
    task = asyncio.create_task(EFFECTS[fx]("rent", 3.0))
    await sleep(when)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return NOT


@workflow
async def by_group(fx: str, when: float) -> str:
    seen = []

    async def one() -> None:
        try:
            seen.append(await EFFECTS[fx]("rent", 3.0))
        except asyncio.CancelledError:
            seen.append(NOT)
            raise

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(one())
            group.create_task(fail(when))
    except* ValueError:
        pass
    return seen[0]


WAYS = [by_timeout, by_wait_for, by_cancel, by_group]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)


def outcome(world, call) -> str:
    """Undisturbed, and once more from its journal."""
    first = world.run(call)
    assert world.replays(call) == first
    return first


# -- acting


@ways
@pytest.mark.parametrize("fx", ["pay", "push", "mail"])
def test_act_under_way_is_not_cut_and_its_value_is_delivered(world, way, fx):
    assert outcome(world, way(fx, 1.0)) == RECEIPT
    assert bank.ended == ["rent"]
    assert world.clock.elapsed == pytest.approx(3, abs=0.1)


@ways
def test_sync_act_under_way_is_not_cut(world, way):
    assert outcome(world, way("sync_pay", 1.0)) == RECEIPT
    assert len(bank.acts) == 1


@ways
def test_act_that_fails_for_certain_after_its_cancellation_is_not_tried_again(world, way):
    bank.comes["rent"] = ["refused", "ok"]
    assert outcome(world, way("pay", 1.0)) == NOT
    assert len(bank.acts) == 1
    assert bank.done == []


@ways
@pytest.mark.parametrize("comes", ["lost", "broken"])
def test_act_that_is_open_after_its_cancellation_is_verified_and_not_done_again(world, way, comes):
    bank.comes["rent"] = [comes, "ok"]
    assert outcome(world, way("pay", 1.0)) == (RECEIPT if comes == "lost" else NOT)
    assert (len(bank.acts), bank.asked_at) == (1, [pytest.approx(SPAN, abs=0.2)])


def test_last_error_of_an_act_that_was_cancelled_is_its_outcome(world):
    @effect(timeout=10, failed_on=Refused)
    async def once(label: str) -> str:
        return await bank.act(label, 3.0, "k")

    @workflow
    async def impatient() -> str:
        try:
            async with asyncio.timeout(1.0):
                return await once("rent")
        except Refused as refused:
            return f"refused: {refused}"

    bank.comes["rent"] = ["refused"]
    assert outcome(world, impatient()) == "refused: rent"


@ways
@pytest.mark.parametrize("comes", ["lost and hangs", "hangs"])
def test_death_after_the_cancellation_of_an_act_is_verified_by_the_next_life(world, way, comes):
    bank.comes["rent"] = [comes, "ok"]
    world.die(way("pay", 1.0), after=2.0)
    assert outcome(world, way("pay", 1.0)) == (RECEIPT if "lost" in comes else NOT)
    assert (len(bank.acts), len(bank.asked)) == (1, 1)


@ways
def test_death_after_the_cancellation_of_an_idempotent_act_repeats_it_under_its_key(world, way):
    """The workflow goes on, and might do the same under another key if it were told that nothing happened."""
    bank.comes["rent"] = ["lost and hangs", "ok"]
    world.die(way("push", 1.0), after=2.0)
    assert outcome(world, way("push", 1.0)) == RECEIPT
    assert (len(bank.acts), len({act.key for act in bank.acts})) == (2, 1)


@ways
def test_effect_is_verified_before_a_cancellation_that_came_due(world, way):
    bank.comes["rent"] = ["lost and hangs"]
    world.die(way("pay", 5.0), after=2.0, gap=100)
    assert outcome(world, way("pay", 5.0)) == RECEIPT
    assert len(bank.acts) == 1


# -- before the act


def test_effect_cancelled_before_its_first_turn_leaves_no_intent(world):
    @workflow
    async def hasty() -> str:
        task = asyncio.create_task(pay("rent"))
        await asyncio.sleep(0)
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return NOT

    assert outcome(world, hasty()) == NOT
    assert bank.acts == []
    assert "intent" not in world.kinds()


def test_effect_cancelled_while_its_intent_is_written_does_not_act(world):
    @workflow
    async def hasty() -> str:
        task = asyncio.create_task(mail("rent"))
        await work("together")
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return NOT

    async def main(app):
        hold_intents(app)
        return await (await app.start(hasty(), id="run")).result()

    assert world.do(main) == NOT
    assert bank.acts == []
    assert sorted(world.kinds()) == ["intent", "step", "step"]
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "did not happen"
    assert world.replays(hasty()) == NOT


def hold_intents(app) -> None:
    """The store has an intent at once, and says so a moment later."""
    store, loop = app._open.services.store, app._open.loop
    put = store.enqueue

    def later(command, done, **options):
        if getattr(command, "kind", None) == "intent":
            put(command, lambda *outcome: loop.call_later(0.05, done, *outcome), **options)
        else:
            put(command, done, **options)

    store.enqueue = later


# -- waiting


@ways
@pytest.mark.parametrize("comes", ["lost", "broken"])
def test_wait_for_verify_is_not_cut_and_its_answer_is_delivered(world, way, comes):
    bank.comes["rent"] = [comes, "ok"]
    assert outcome(world, way("pay", 8.0)) == (RECEIPT if comes == "lost" else NOT)
    assert (len(bank.acts), bank.asked_at) == (1, [pytest.approx(SPAN, abs=0.2)])


@ways
@pytest.mark.parametrize("comes", ["lost", "broken"])
def test_running_verify_is_not_cut_and_its_answer_is_delivered(world, way, comes):
    bank.comes["rent"] = [comes, "ok"]
    bank.answers["rent"] = ["slow"]
    assert outcome(world, way("pay", SPAN + 2)) == (RECEIPT if comes == "lost" else NOT)
    assert (len(bank.acts), len(bank.asked)) == (1, 1)


@ways
def test_verify_that_cannot_tell_is_asked_again_also_of_what_was_cancelled(world, way):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises", "raises", "raises", "truth"]
    assert outcome(world, way("pay", SPAN + 2)) == RECEIPT
    assert (len(bank.acts), len(bank.asked)) == (1, 4)


@ways
def test_back_off_after_a_certain_failure_is_cut_at_once(world, way):
    bank.comes["rent"] = ["refused", "ok"]
    assert outcome(world, way("pay", 3.2)) == NOT
    assert world.clock.elapsed == pytest.approx(3.2, abs=0.1)
    assert len(bank.acts) == 1


@ways
def test_idempotent_effect_that_may_have_happened_is_repeated_although_it_was_cancelled(world, way):
    bank.comes["rent"] = ["lost", "ok"]
    assert outcome(world, way("push", 3.2)) == RECEIPT
    assert (len(bank.acts), len({act.key for act in bank.acts})) == (2, 1)


@ways
@pytest.mark.parametrize("died", [5.0, 10.0])
def test_wait_that_was_cancelled_goes_on_in_the_next_life(world, way, died):
    bank.comes["rent"] = ["lost"]
    world.die(way("pay", 8.0), after=died)
    assert outcome(world, way("pay", 8.0)) == RECEIPT
    assert bank.asked_at == [pytest.approx(SPAN, abs=0.2)]


# -- unknown


@workflow
async def unknown_then_cancelled() -> str:
    async def wanted() -> str:
        try:
            async with asyncio.timeout(20.0):
                return await mail("rent", 3.0)
        except TimeoutError:
            return NOT

    came, _ = await asyncio.gather(wanted(), work("meanwhile", 30.0))
    return came


def test_unknown_effect_that_was_cancelled_is_still_for_a_person_to_decide(world):
    bank.comes["rent"] = ["broken"]
    with pytest.raises(RunParked, match="mail#1"):
        world.run(unknown_then_cancelled())
    assert world.clock.elapsed == pytest.approx(30, abs=0.1)
    assert "fired" in world.kinds()


def test_unknown_effect_that_was_cancelled_and_happened_delivers_its_value(world):
    bank.comes["rent"] = ["broken"]
    with pytest.raises(RunParked):
        world.run(unknown_then_cancelled())
    world.do(lambda app: app.decide("run", "mail", happened="found it"))
    assert outcome(world, unknown_then_cancelled()) == "found it"
    assert len(bank.acts) == 1


def test_unknown_effect_that_was_cancelled_and_did_not_happen_is_not_done(world):
    bank.comes["rent"] = ["broken"]
    with pytest.raises(RunParked):
        world.run(unknown_then_cancelled())
    world.do(lambda app: app.decide("run", "mail", did_not=True))
    assert outcome(world, unknown_then_cancelled()) == NOT
    assert len(bank.acts) == 1
