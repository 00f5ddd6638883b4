"""Acting: an intent is durable before the act, its outcome after; an exception that means that it did not happen is tried again."""

import asyncio
import json
import logging
from dataclasses import dataclass

import pytest
from bank import (
    MARGIN,
    TIMEOUT,
    Refused,
    bank,
    mail,
    mailing,
    pay,
    paying,
    paying_in_a_thread,
    push,
    pushing,
    sync_mail,
    sync_pay,
    sync_push,
)

from outlast import (
    KEY,
    Evicted,
    LimitExceeded,
    NotInRun,
    RunDead,
    RunParked,
    Unrecordable,
    current,
    effect,
    step,
    sync,
    unit,
    workflow,
)
from outlast.store.verbs import Claim, Enlist, Sweep

SPAN = TIMEOUT + MARGIN


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    yield
    bank.dies = True
    bank.gate.set()


@workflow
def paying_in_sync(label: str = "rent", seconds: float = 1.0) -> str:
    return sync_pay(label, seconds)


# -- intent, act, confirm


def test_the_intent_is_durable_before_the_act_and_the_outcome_after(world):
    seen = []

    @effect(timeout=10)
    async def look() -> str:
        seen.append(world.kinds())
        return "seen"

    @workflow
    async def looking() -> str:
        answer = await look()
        seen.append(world.kinds())
        return answer

    assert world.run(looking()) == "seen"
    assert seen == [["intent"], ["intent", "step"]]


def test_the_intent_tells_all_that_somebody_needs_who_has_only_the_journal(world):
    world.run(paying("rent", 2.0))
    intent, step = world.journal()
    said = json.loads(intent.value)
    assert json.loads(said.pop("arguments")) == {"label": "rent", "seconds": 2.0}
    assert said == {
        "key": bank.keys[0],
        "effect": "pay",
        "code": pay.code,
        "compensation": None,
        "timeout": TIMEOUT,
        "threaded": False,
        "generation": 0,
    }
    assert (intent.key, intent.args) == (step.key, step.args)
    assert (step.value, step.error) == ('"receipt for rent"', None)


def test_a_confirmed_effect_is_not_done_again_by_any_life(world):
    assert world.run(paying()) == "receipt for rent"
    assert world.replays(paying()) == "receipt for rent"
    assert len(bank.acts) == 1


def test_an_effect_is_confirmed_before_the_next_begins(world):
    @workflow
    async def two() -> None:
        await pay("a")
        await pay("b")

    world.run(two())
    assert world.kinds() == ["intent", "step", "intent", "step"]


def test_the_act_gets_its_arguments_as_the_journal_has_them(world):
    """Otherwise the act in this life and the verify in the next would not speak of the same thing."""
    got = []

    @dataclass
    class Order:
        lines: list[str]

    @effect(timeout=10)
    async def place(order: Order) -> None:
        got.append(order)

    @workflow
    async def ordering() -> None:
        order = Order(["a"])
        placing = place(order)
        order.lines.append("b")
        await placing

    place.signature._hints = {"order": Order, "return": None}
    place.signature._unrecorded = frozenset()
    world.run(ordering())
    assert got == [Order(["a"])]


def test_the_body_of_an_effect_knows_its_run_and_its_attempt(world):
    seen = []

    @effect(timeout=10, failed_on=Refused, retries=1)
    async def look() -> None:
        seen.append((current().id, current().step, current().attempt))
        if len(seen) == 1:
            raise Refused

    @workflow
    async def looking() -> None:
        await look()

    world.run(looking())
    assert seen == [("run", "look#1", 1), ("run", "look#1", 2)]


def test_an_intent_is_no_progress_so_that_an_effect_that_kills_its_worker_becomes_a_dead_letter(world):
    bank.comes["rent"] = ["hangs"]
    for death in range(5):
        world.die(pushing(), until=lambda: len(bank.acts) > death, gap=1000)
    with pytest.raises(RunDead):
        world.run(pushing())
    assert len(bank.acts) == 5


# -- slow stores


def test_an_intent_that_took_long_to_become_durable_is_followed_by_another_before_the_act(world):
    """The wait after a death counts from the last intent, and must not be over while the act is under way."""
    delays = [MARGIN, MARGIN, 0.0]

    async def main(app):
        slow(app, "intent", delays)
        return await (await app.start(paying(), id="run")).result()

    assert world.do(main) == "receipt for rent"
    assert world.kinds() == ["intent", "intent", "intent", "step"]
    intents = [entry.at for entry in world.journal() if entry.kind == "intent"]
    assert bank.clock.start + bank.times[0] - intents[-1] <= MARGIN / 2


def test_a_certain_failure_is_certain_also_after_a_slow_intent(world):
    bank.comes["rent"] = ["refused"]

    async def main(app):
        slow(app, "intent", [MARGIN, 0.0])
        return await (await app.start(mailing(), id="run")).result(timeout=1e5)

    with pytest.raises(Refused):
        world.do(main)
    assert len(bank.acts) == 3


def test_a_store_that_never_takes_an_intent_in_time_gets_the_run_back_without_an_act(world):
    async def main(app):
        slow(app, "intent", [MARGIN])
        run = await app.start(paying(), id="run")
        await asyncio.sleep(5 * MARGIN + 1)
        del app._house.writer.put
        return await run.result()

    assert world.do(main) == "receipt for rent"
    assert bank.times[0] >= 5 * MARGIN
    assert len(bank.acts) == 1


def slow(app, kind: str, delays: list[float]) -> None:
    """Entries of this kind reach the store so much later: its writer is held up."""
    writer = app._house.writer
    put = writer.put

    def later(verb, done, **options):
        if getattr(verb, "kind", None) == kind:
            app._house.loop.call_later(delays.pop(0) if len(delays) > 1 else delays[0], put, verb, done)
        else:
            put(verb, done, **options)

    writer.put = later


def heard_late(app, kind: str, seconds: float) -> None:
    """The store has entries of this kind at once, and says so later."""
    writer, loop = app._house.writer, app._house.loop
    put = writer.put

    def later(verb, done, **options):
        if getattr(verb, "kind", None) == kind:
            put(verb, lambda *outcome: loop.call_later(seconds, done, *outcome), **options)
        else:
            put(verb, done, **options)

    writer.put = later


# -- exceptions that mean that it did not happen


def test_what_failed_for_certain_is_tried_again_with_back_off_and_asks_nobody(world):
    bank.comes["rent"] = ["refused", "refused", "ok"]
    assert world.run(paying()) == "receipt for rent"
    assert world.kinds() == ["intent", "attempt", "intent", "attempt", "intent", "step"]
    assert bank.asked == []
    first, second = (
        later - earlier - 1.0 for earlier, later in zip(bank.times, bank.times[1:], strict=False)
    )
    assert 0.5 <= first <= 1
    assert 1 <= second <= 2


def test_when_no_retry_is_left_the_error_itself_reaches_the_workflow(world):
    bank.comes["rent"] = ["refused"]

    @workflow
    async def careful() -> str:
        try:
            return await pay("rent")
        except Refused as refused:
            return f"refused: {refused}"

    assert world.run(careful()) == "refused: rent"
    assert len(bank.acts) == 3, "one, and two retries"
    assert bank.asked == []
    assert world.kinds()[-2:] == ["intent", "step"]
    assert world.journal()[-1].value is None
    assert world.replays(careful()) == "refused: rent"


def test_attempts_are_counted_over_lives(world):
    bank.comes["rent"] = ["refused"]
    world.die(paying(), until=lambda: "attempt" in world.kinds())
    with pytest.raises(Refused):
        world.run(paying())
    assert len(bank.acts) == 3
    assert bank.asked == []


def test_a_death_in_the_back_off_does_not_wait_and_does_not_ask(world):
    @effect(timeout=TIMEOUT, failed_on=Refused, retries=1, backoff=4)
    async def patient(label: str) -> str:
        return await bank.act(label, 1.0, KEY)

    @workflow
    async def waiting() -> str:
        return await patient("rent")

    bank.comes["rent"] = ["refused", "ok"]
    world.die(waiting(), after=1.5)
    assert world.run(waiting()) == "receipt for rent"
    first, second = bank.times
    assert 2 <= second - first - 1 <= 4, "only the back-off, over both lives"


def test_without_retries_a_certain_failure_is_the_outcome_at_once(world):
    bank.comes["rent"] = ["refused"]

    @effect(timeout=10, failed_on=(OSError, Refused))
    async def once(label: str) -> str:
        return await bank.act(label, 1.0, KEY)

    @workflow
    async def trying() -> str:
        return await once("rent")

    with pytest.raises(Refused):
        world.run(trying())
    assert world.kinds() == ["intent", "step"]


def test_a_time_out_of_the_effects_own_is_unknown_though_time_outs_are_failures(world):
    bank.comes["rent"] = ["hangs"]
    with pytest.raises(RunParked, match=r"mail#1.*took longer than its timeout"):
        world.run(mailing())
    assert len(bank.acts) == 1


def test_a_time_out_that_the_act_raises_itself_is_what_failed_on_says(world):
    bank.comes["rent"] = ["late", "ok"]
    assert world.run(mailing()) == "receipt for rent"
    assert len(bank.acts) == 2


def test_a_certain_failure_after_an_act_that_may_have_happened_does_not_say_that_nothing_did(world):
    """The other side refuses the second because it has the first."""
    bank.comes["rent"] = ["lost", "refused"]
    with pytest.raises(RunParked, match=r"push#1"):
        world.run(pushing())
    assert [line.label for line in bank.done] == ["rent"]
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "open"


def test_a_certain_failure_after_verify_said_no_is_certain(world):
    bank.comes["rent"] = ["broken", "refused"]
    with pytest.raises(Refused):
        world.run(paying())
    assert len(bank.asked) == 1
    assert len(bank.acts) == 3


# -- the result


def test_a_result_that_cannot_be_recorded_has_happened_and_the_workflow_is_told(world):
    @effect(timeout=10)
    async def odd() -> object:
        bank.begin("odd", "k")
        return object()

    @workflow
    async def trying() -> str:
        try:
            await odd()
        except Unrecordable as error:
            return str(error)
        return "?"

    told = world.run(trying())
    assert "odd happened, but its result cannot be recorded" in told
    assert world.kinds() == ["intent", "step"]
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "happened"
    assert world.replays(trying()) == told
    assert len(bank.acts) == 1


def test_a_result_that_is_too_large_has_happened_and_the_workflow_is_told(world):
    world.settings = {"value_size_max": 1000}

    @effect(timeout=10, idempotent=True, retries=3)
    async def large() -> str:
        bank.begin("large", "k")
        return "x" * 2000

    @workflow
    async def trying() -> str:
        try:
            return await large()
        except Unrecordable as error:
            return str(error)

    told = world.run(trying())
    assert "value_size_max" in told
    assert len(bank.acts) == 1
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "happened"
    assert world.replays(trying()) == told


def test_arguments_that_cannot_be_recorded_are_refused_before_anything_is_written(world):
    @effect(timeout=10)
    async def take(what: object) -> None:
        bank.begin("take", "k")

    @workflow
    async def trying() -> str:
        try:
            await take(object())
        except Unrecordable:
            return "refused"
        return "?"

    assert world.run(trying()) == "refused"
    assert world.kinds() == []
    assert bank.acts == []


def test_arguments_that_are_too_large_are_refused_before_anything_is_written(world):
    world.settings = {"value_size_max": 1000}

    @workflow
    async def trying() -> str:
        try:
            return await pay("x" * 2000)
        except LimitExceeded as error:
            return error.limit

    assert world.run(trying()) == "value_size_max"
    assert world.kinds() == []


def test_arguments_that_the_function_does_not_take_are_a_type_error_before_anything_is_written(world):
    @workflow
    async def trying() -> str:
        try:
            return await pay("rent", amount=3)
        except TypeError as error:
            return str(error)

    assert "amount" in world.run(trying())
    assert world.kinds() == []


# -- sync effects


def test_a_sync_effect_acts_in_a_thread_of_an_async_workflow(world):
    assert world.run(paying_in_a_thread()) == "receipt for rent"
    assert world.kinds() == ["intent", "step"]
    assert world.replays(paying_in_a_thread()) == "receipt for rent"
    assert len(bank.acts) == 1


def test_a_sync_effect_is_a_plain_call_in_a_sync_workflow(world):
    assert world.run(paying_in_sync()) == "receipt for rent"
    assert world.kinds() == ["intent", "step"]
    assert world.replays(paying_in_sync()) == "receipt for rent"
    assert len(bank.acts) == 1


def test_a_sync_effect_that_failed_for_certain_is_tried_again(world):
    bank.comes["rent"] = ["refused", "refused", "ok"]
    assert world.run(paying_in_sync()) == "receipt for rent"
    assert len(bank.acts) == 3


def test_a_sync_effect_cannot_be_cut_so_its_late_end_is_its_outcome(world, caplog):
    assert world.run(paying_in_a_thread("rent", 5 * TIMEOUT)) == "receipt for rent"
    assert "took longer than its timeout of 10.0 s. It is sync and cannot be stopped" in caplog.text
    assert (len(bank.acts), bank.asked) == (1, [])


def test_a_thread_went_on_until_its_process_died_so_its_wait_counts_from_the_death(world):
    bank.comes["rent"] = ["hangs", "ok"]
    world.die(paying_in_a_thread("rent", 30.0), until=lambda: world.clock.elapsed > 29, gap=1)
    bank.dies = True
    bank.gate.set()
    assert bank.times == [0]
    died = world.clock.elapsed
    bank.dies = False
    world.run(paying_in_a_thread("rent", 30.0))
    assert bank.asked_at == [pytest.approx(died + SPAN, abs=0.5)]


def test_no_act_begins_while_the_thread_of_an_earlier_one_lives(world):
    bank.comes["rent"] = ["lost"]

    @workflow
    async def once() -> str:
        return await sync_push.aio("rent", 20.0)

    with pytest.raises(RunParked):
        world.run(once())
    assert [later - earlier >= 20 for earlier, later in zip(bank.times, bank.times[1:], strict=False)] == [
        True
    ] * 3


def test_the_sync_face_has_the_same_effects(world):
    assert sync.effect is effect
    assert sync.KEY is KEY


# -- where effects are not allowed


def test_an_effect_called_in_a_step_is_refused_and_a_step_in_an_effect_too(world):
    @step
    async def inner() -> str:
        return "?"

    @step
    async def calls_an_effect() -> str:
        return await pay("rent")

    @effect(timeout=10, failed_on=NotInRun)
    async def calls_a_step() -> str:
        return await inner()

    @step
    def calls_a_sync_effect() -> str:
        return sync_pay("rent")

    @workflow
    async def trying() -> list[str]:
        told = []
        for call in (calls_an_effect, calls_a_step, calls_a_sync_effect.aio):
            try:
                told.append(await call())
            except Exception as error:
                told.append(f"{type(error).__name__}: {error}")
        return told

    told = world.run(trying())
    assert [one.partition(":")[0] for one in told] == ["NotInRun"] * 3
    assert "call the effect from the workflow itself" in told[0]
    assert "effect" in told[1]
    assert bank.acts == []


def test_an_effect_called_in_an_effect_is_refused(world):
    @effect(timeout=10, failed_on=NotInRun)
    async def outer() -> str:
        return await pay("rent")

    @workflow
    async def trying() -> str:
        try:
            return await outer()
        except Exception as error:
            return type(error).__name__

    assert world.run(trying()) == "NotInRun"
    assert bank.acts == []


# -- a life that ends while an effect acts


def test_an_act_under_way_when_the_app_closes_is_not_cut_and_its_outcome_is_recorded(world):
    async def main(app):
        await app.start(paying("rent", 3.0), id="run")
        await asyncio.sleep(1)

    world.do(main)
    assert [line.label for line in bank.done] == ["rent"]
    assert world.kinds() == ["intent", "step", "interruption"]
    world.restart()
    assert world.run(paying("rent", 3.0)) == "receipt for rent"
    assert (len(bank.acts), bank.asked) == (1, [])


def test_a_thread_under_way_when_the_app_closes_is_waited_for_and_its_outcome_is_recorded(world):
    bank.comes["rent"] = ["hangs"]

    async def main(app):
        await app.start(paying_in_sync(), id="run")
        app._house.closed_soon.add_done_callback(lambda _: bank.gate.set())
        while not bank.acts:
            await asyncio.sleep(0)

    world.do(main)
    assert world.kinds() == ["intent", "step", "interruption"]
    world.restart()
    assert world.run(paying_in_sync()) == "receipt for rent"
    assert (len(bank.acts), bank.asked) == (1, [])


def test_a_certain_failure_when_the_app_closes_is_recorded_too(world):
    bank.comes["rent"] = ["refused", "ok"]

    async def main(app):
        await app.start(paying("rent", 3.0), id="run")
        await asyncio.sleep(1)

    world.do(main)
    assert world.kinds() == ["intent", "attempt", "interruption"]
    closed = world.clock.elapsed
    world.restart()
    assert world.run(paying("rent", 3.0)) == "receipt for rent"
    assert bank.asked == []
    assert bank.times[1] - closed < 2, "only the back-off"


def test_an_act_that_takes_longer_than_closing_does_is_left_open(world):
    async def main(app):
        await app.start(paying("rent", 9.0), id="run")
        await asyncio.sleep(1)

    world.do(main)
    assert bank.done == []
    assert "step" not in world.kinds()
    world.restart(after=100)
    world.store._db.execute("DELETE FROM workers")
    assert world.run(paying("rent", 9.0)) == "receipt for rent"
    assert (len(bank.acts), len(bank.asked)) == (2, 1)


def test_a_run_that_is_evicted_between_its_intent_and_its_act_acts_no_more_and_need_not_be_verified(world):
    """Nobody need decide what came of an act that was never begun."""

    async def main(app):
        heard_late(app, "intent", 0.05)
        await app.start(mailing(), id="run")
        await asyncio.sleep(0.01)

    world.do(main)
    assert bank.acts == []
    assert "intent" in world.kinds()
    world.restart()
    assert world.run(mailing()) == "receipt for rent"
    assert len(bank.acts) == 1


def test_an_outcome_that_comes_after_the_run_was_lost_is_an_error_in_the_log(world, caplog):
    async def main(app):
        await app.start(paying("rent", 5.0), id="run")
        await asyncio.sleep(1)
        steal(world, app)
        app._house.lives["run"].evict(lost())
        await asyncio.sleep(10)

    with caplog.at_level(logging.ERROR):
        world.do(main)
    assert (
        "effect pay#1 of run run returned after this worker had lost the run: it may have been done twice"
        in caplog.text
    )
    assert world.kinds() == ["intent", "death"]


def test_an_outcome_that_the_store_refuses_is_an_error_in_the_log(world, caplog):
    async def main(app):
        await app.start(paying("rent", 5.0), id="run")
        await asyncio.sleep(1)
        steal(world, app)
        await asyncio.sleep(10)

    with caplog.at_level(logging.ERROR):
        world.do(main)
    assert "it may have been done twice" in caplog.text
    assert world.kinds() == ["intent", "death"]


def lost() -> Evicted:
    evicted = Evicted("another worker has it")
    evicted.lost = True
    return evicted


def steal(world, app, id="run") -> None:
    """Another worker sweeps and claims, as if the first one had been taken for dead."""
    other = world.open()
    other.hold("thief")
    other.commit([Enlist("thief", "elsewhere", 1, 1e6)])
    other._db.execute("DELETE FROM workers WHERE id = ?", (app._house.worker.id,))
    assert other.commit([Sweep()])[0].runs == (id,)
    other.commit([Claim("thief", "t", ids=(id,))])


# -- a drain


def test_an_act_under_way_is_not_cut_by_a_drain_that_tells_steps_to_stop(world):
    async def main(app):
        await app.start(paying("rent", 8.0), id="run")
        await asyncio.sleep(1)
        return await app.drain("test", grace=10)  # steps are told to stop after 5.5 s of it

    report = world.do(main)
    assert [line.label for line in bank.done] == ["rent"]
    assert world.kinds()[:2] == ["intent", "step"]
    assert report.left == []
    world.restart()
    assert world.run(paying("rent", 8.0)) == "receipt for rent"
    assert (len(bank.acts), bank.asked) == (1, [])


def test_an_act_that_fails_for_certain_in_a_drain_is_tried_again_by_the_next_life(world):
    bank.comes["rent"] = ["refused", "ok"]

    async def main(app):
        await app.start(paying("rent", 3.0), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=20)
        return app.clock()

    world.do(main)
    assert len(bank.acts) == 1
    assert world.clock.elapsed < 5
    world.restart()
    assert world.run(paying("rent", 3.0)) == "receipt for rent"
    assert bank.asked == []


def test_a_drain_does_not_wait_for_an_effect_that_waits_to_be_verified(world):
    bank.comes["rent"] = ["lost"]

    async def main(app):
        await app.start(paying("rent", 3.0), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=30)

    world.do(main)
    assert bank.asked == []
    assert world.clock.elapsed < 5
    world.restart()
    assert world.run(paying("rent", 3.0)) == "receipt for rent"
    assert bank.asked_at == [pytest.approx(SPAN, abs=0.5)]
    assert len(bank.acts) == 1


def test_in_a_drain_a_unit_begins_no_effect_that_only_a_person_could_sort_out(world):
    @workflow
    async def order() -> list[str]:
        async with unit("order"):
            return [await push("first", 3.0), await mail("second")]

    async def main(app):
        await app.start(order(), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=10)

    world.do(main)
    assert bank.labels == ["first"]
    assert world.kinds()[:2] == ["intent", "step"]
    assert "intent" not in world.kinds()[2:]
    world.restart()
    assert world.run(order()) == ["receipt for first", "receipt for second"]
    assert bank.labels == ["first", "second"]


@pytest.mark.parametrize("fx", [pay, push], ids=["verifiable", "idempotent"])
def test_in_a_drain_a_unit_begins_an_effect_that_the_next_life_can_sort_out(world, fx):
    @workflow
    async def order() -> list[str]:
        async with unit("order"):
            return [await push("first", 3.0), await fx("second")]

    async def main(app):
        await app.start(order(), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=10)

    world.do(main)
    assert bank.labels == ["first", "second"]
    assert world.status() == "done"


def test_in_a_drain_a_unit_begins_an_effect_that_nobody_can_verify_if_there_is_time_for_it(world):
    @workflow
    async def order() -> list[str]:
        async with unit("order"):
            return [await push("first", 3.0), await mail("second")]

    async def main(app):
        await app.start(order(), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=60)

    world.do(main)
    assert bank.labels == ["first", "second"]
    assert world.status() == "done"


def test_no_effect_begins_in_a_drain(world):
    @workflow
    async def two() -> list[str]:
        return [await pay("a", 3.0), await pay("b", 3.0)]

    async def main(app):
        await app.start(two(), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=60)

    world.do(main)
    assert bank.labels == ["a"]
    world.restart()
    assert world.run(two()) == ["receipt for a", "receipt for b"]
    assert bank.labels == ["a", "b"]


# -- a program that ends in the middle


def test_a_sync_mail_whose_thread_still_hangs_when_its_process_dies_is_nobodys_to_do_again(world):
    @workflow
    async def sending() -> str:
        return await sync_mail.aio("rent", 1.0)

    bank.comes["rent"] = ["hangs"]
    world.die(sending(), until=lambda: bool(bank.acts))
    with pytest.raises(RunParked, match="sync_mail#1"):
        world.run(sending())
    assert len(bank.acts) == 1
