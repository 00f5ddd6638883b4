"""An open intent: whether the effect happened is found out, no earlier than its act can be under way; or a person must say."""

import asyncio
import threading
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
    pushing,
    sync_push,
)

from outlast import (
    KEY,
    Happened,
    Outlast,
    RunParked,
    StepTimeout,
    Unrecordable,
    Unrecorded,
    effect,
    sleep,
    step,
    workflow,
)
from outlast.testing import App

SPAN = TIMEOUT + MARGIN


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    yield
    bank.dies = True
    bank.gate.set()


def about(seconds: float):
    return pytest.approx(seconds, abs=0.2)


def resumed(world, call, id="run"):
    world.do(lambda app: app.resume(id))
    return world.run(call, id=id)


# -- the wait


def test_after_a_death_nothing_is_asked_before_the_act_must_be_over_wherever_it_was_begun(world):
    world.die(paying(), after=0.5)
    world.run(paying())
    assert bank.asked_at == [about(SPAN)]


def test_a_life_that_waits_for_anothers_act_says_so_and_for_how_long(world, caplog):
    world.die(paying(), after=0.5)
    world.run(paying())
    [told] = [one for one in caplog.records if "was under way when its process ended" in one.getMessage()]
    assert told.levelname == "WARNING"
    assert (
        f"effect pay#1 of run run was under way when its process ended: in {SPAN - 0.5:.0f} s"
        in told.getMessage()
    )


def test_a_life_that_waits_for_an_act_that_raised_does_not_say_that_it_was_cut(world, caplog):
    bank.comes["rent"] = ["broken", "ok"]
    world.die(paying(), after=4)
    world.run(paying())
    [told] = [one.getMessage() for one in caplog.records if "it is found out" in one.getMessage()]
    assert told.startswith("effect pay#1 of run run raised, and may have happened: in ")


def test_the_wait_counts_from_the_intent_not_from_the_death_or_the_new_life(world):
    bank.comes["rent"] = ["hangs", "ok"]
    world.die(paying(), after=8, gap=4)
    world.run(paying())
    assert bank.asked_at == [about(SPAN)]


def test_after_a_long_outage_there_is_nothing_left_to_wait_for(world):
    world.die(paying(), after=0.5, gap=3600)
    world.run(paying())
    assert bank.asked_at == [about(3600.5)]


@pytest.mark.parametrize("comes", ["lost", "broken"])
def test_after_an_exception_nothing_is_asked_before_the_act_must_be_over(world, comes):
    bank.comes["rent"] = [comes, "ok"]
    assert world.run(paying()) == "receipt for rent"
    assert bank.asked_at == [about(SPAN)]
    assert len(bank.acts) == (1 if comes == "lost" else 2)


def test_after_a_time_out_nothing_is_asked_before_the_margin_is_over(world):
    bank.comes["rent"] = ["lost and hangs"]
    assert world.run(paying()) == "receipt for rent"
    assert bank.asked_at == [about(SPAN)]
    assert len(bank.acts) == 1


def test_the_margin_is_a_setting(world):
    world.settings = {"effect_margin": 100}
    bank.comes["rent"] = ["lost"]
    world.run(paying())
    assert bank.asked_at == [about(TIMEOUT + 100)]


def test_without_a_margin_there_is_only_the_timeout(world):
    world.settings = {"effect_margin": 0}
    bank.comes["rent"] = ["lost"]
    world.run(paying())
    assert bank.asked_at == [about(TIMEOUT)]


def test_the_timeout_that_counts_is_the_one_that_the_act_had(world):
    """The code may have another one by now."""

    def version(timeout: float):
        @effect(timeout=timeout)
        async def send(label: str) -> str:
            return await bank.act(label, 1.0, "k")

        @send.verify
        async def sent(label: str) -> Happened[str] | None:
            return bank.answer(label, "k", bank.ask(label, "k"))

        @workflow
        async def sending() -> str:
            return await send("x")

        return sending

    world.die(version(100)(), after=0.5)
    world.run(version(2)())
    assert bank.asked_at == [about(100 + MARGIN)]


def test_a_second_death_in_the_wait_does_not_prolong_it(world):
    world.die(paying(), after=0.5)
    world.die(paying(), after=5)
    world.run(paying())
    assert bank.asked_at == [about(SPAN)]


def test_an_act_that_was_repeated_is_waited_for_anew(world):
    world.die(paying(), after=0.5)
    world.die(paying(), until=lambda: len(bank.acts) == 2)
    assert bank.times[1] == about(SPAN)
    world.run(paying())
    assert bank.asked_at == [about(SPAN), about(2 * SPAN)]


# -- a run that only waits for that


def worker(world, **settings) -> App:
    alone = {"lease": 1e7, "heartbeat": 1e6, "ramp": 0, "new_share": 0, "concurrency": 1}
    return world.restart(worker=True, **{**alone, "workflows": [slow_paying, quick], **settings})


@effect(timeout=1000, undo=None)
async def slow_pay(label: str, key: str = KEY) -> str:
    return await bank.act(label, 1.0, key)


@slow_pay.verify
async def slow_paid(label: str, key: str) -> Happened[str] | None:
    return bank.answer(label, key, bank.ask(label, key))


@workflow
async def slow_paying() -> str:
    return await slow_pay("rent")


@workflow
async def quick() -> float:
    return bank.now()


def test_a_run_that_waits_to_verify_is_given_back_by_its_worker_and_holds_no_slot(world):
    world.die(slow_paying(), after=0.5)
    worker(world)

    async def main(app):
        run = app.get(slow_paying, "run")
        await asyncio.sleep(10)
        row = app.store.run("run")
        assert (row.status, row.worker) == ("waiting", None)
        assert row.due == about(world.clock.start + 1000 + MARGIN)
        other = await app.submit(quick(), id="other")
        assert await other.result(timeout=5) < 20, "the only slot is free"
        return await run.result(timeout=5000)

    assert world.do(main) == "receipt for rent"
    assert bank.asked_at == [pytest.approx(1000 + MARGIN, abs=2.1)], "or when its worker next looks"
    assert world.row().deaths == 1
    assert world.row().interruptions == 0


def test_a_run_whose_act_raised_is_given_back_too_and_another_life_asks(world):
    bank.comes["rent"] = ["lost"]
    worker(world)

    async def main(app):
        run = await app.submit(slow_paying(), id="run")
        await asyncio.sleep(20)
        assert app.store.run("run").status == "waiting"
        return await run.result(timeout=5000)

    assert world.do(main) == "receipt for rent"
    assert bank.asked_at == [about(1000 + MARGIN)]
    assert world.row().lives == 2
    assert len(bank.acts) == 1


def test_a_run_that_has_something_else_to_do_meanwhile_is_not_given_back(world):
    @workflow
    async def both() -> list[str]:
        return await asyncio.gather(slow_pay("rent"), work("long", 500.0))

    world.die(both(), after=0.5)
    worker(world, workflows=[both])

    async def main(app):
        await asyncio.sleep(10)
        assert app.store.run("run").status == "running"
        return await app.get(both, "run").result(timeout=5000)

    assert world.do(main) == ["receipt for rent", "long"]


@step
async def work(label: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return label


# -- verify


def test_verify_says_that_it_happened_and_that_is_its_result(world):
    bank.comes["rent"] = ["lost"]
    assert world.run(paying()) == "receipt for rent"
    assert (len(bank.acts), len(bank.asked)) == (1, 1)
    assert world.journal()[-1].value == '"receipt for rent"'
    assert world.replays(paying()) == "receipt for rent"
    assert len(bank.asked) == 1, "it is on record"


@dataclass
class Receipt:
    number: int


@effect(timeout=10)
async def typed(label: str, key: str = KEY) -> Receipt:
    raise ConnectionResetError


@typed.verify
async def typed_verify(label: str) -> Happened[Receipt] | None:
    return Happened(Receipt(7))


def test_what_verify_says_is_recorded_by_the_type_of_the_effect(world):
    @workflow
    async def typing() -> int:
        receipt = await typed("x")
        assert isinstance(receipt, Receipt)
        return receipt.number

    assert world.run(typing()) == 7
    assert world.replays(typing()) == 7


def test_verify_says_that_it_did_not_and_it_acts_again_under_the_same_key(world):
    world.die(paying(), after=0.5)
    assert world.run(paying()) == "receipt for rent"
    assert len(bank.acts) == 2
    assert len(set(bank.keys)) == 1


def test_a_death_after_verify_has_said_no_neither_waits_nor_asks_again(world):
    world.die(paying(), after=0.5)

    def said_no() -> bool:
        return "verify" in world.kinds()

    bank.comes["rent"] = ["refused", "ok"]
    world.die(paying(), until=lambda: "attempt" in world.kinds())
    assert said_no()
    world.run(paying())
    assert len(bank.asked) == 1


def test_an_act_that_never_happens_raises_its_own_exception_in_the_end(world):
    bank.comes["rent"] = ["broken"]

    @workflow
    async def careful() -> str:
        try:
            return await pay("rent")
        except ConnectionError as error:
            return f"gave up: {error}"

    assert world.run(careful()) == "gave up: rent"
    assert (len(bank.acts), len(bank.asked)) == (4, 4)
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "did not happen"
    assert world.replays(careful()) == "gave up: rent"


def test_an_act_that_never_ends_in_time_raises_its_time_out_in_the_end(world):
    bank.comes["rent"] = ["hangs"]
    with pytest.raises(StepTimeout, match="pay took longer than its timeout"):
        world.run(paying())
    assert len(bank.acts) == 4


def test_an_effect_with_more_retries_acts_again_more_often(world):
    @effect(timeout=10, retries=6)
    async def stubborn(label: str) -> str:
        return await bank.act(label, 1.0, "k")

    @stubborn.verify
    async def verify(label: str) -> Happened[str] | None:
        return bank.answer(label, "k", bank.ask(label, "k"))

    @workflow
    async def trying() -> str:
        return await stubborn("rent")

    bank.comes["rent"] = ["broken"] * 6 + ["ok"]
    assert world.run(trying()) == "receipt for rent"
    assert len(bank.acts) == 7


def test_deaths_use_up_no_retries(world):
    for death in range(4):
        world.die(paying(), until=lambda: len(bank.acts) > death, gap=1000)
    assert world.run(paying()) == "receipt for rent"
    assert len(bank.acts) == 5


def test_a_verify_that_cannot_tell_is_asked_again_with_back_off(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises", "raises", "raises", "truth"]
    assert world.run(paying()) == "receipt for rent"
    assert bank.asked_at == [about(SPAN + seconds) for seconds in (0, 1, 3, 7)]
    assert len(bank.acts) == 1


def test_a_verify_that_never_can_tell_parks_the_run_after_verify_attempts(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises"]
    with pytest.raises(RunParked) as parked:
        world.run(paying())
    assert len(bank.asked) == 5
    reason = str(parked.value)
    assert "pay#1: verify could not tell" in reason
    assert "no line to ask after rent" in reason
    assert "outlast decide run pay#1 --happened RESULT" in reason


def test_verify_attempts_is_a_setting(world):
    world.settings = {"verify_attempts": 2}
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises"]
    with pytest.raises(RunParked):
        world.run(paying())
    assert len(bank.asked) == 2


def test_askings_are_counted_over_lives(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises"]
    world.die(paying(), until=lambda: world.kinds().count("verify") == 2)
    with pytest.raises(RunParked):
        world.run(paying())
    assert len(bank.asked) == 5


def test_the_back_off_of_verify_goes_on_over_lives(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises", "raises", "raises", "truth"]
    world.die(paying(), until=lambda: world.kinds().count("verify") == 3)
    world.run(paying())
    assert bank.asked_at == [about(SPAN + seconds) for seconds in (0, 1, 3, 7)]


def test_a_resumed_run_asks_anew_as_often(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises"] * 9 + ["truth"]
    with pytest.raises(RunParked):
        world.run(paying())
    assert resumed(world, paying()) == "receipt for rent"
    assert len(bank.asked) == 10
    assert len(bank.acts) == 1


def test_a_verify_that_answers_rubbish_cannot_tell(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["rubbish"]
    with pytest.raises(RunParked, match=r"answers Happened\(result\) or None, not True"):
        world.run(paying())
    assert len(bank.acts) == 1


def test_a_verify_that_hangs_cannot_tell(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["hangs", "truth"]
    assert world.run(paying()) == "receipt for rent"
    assert bank.asked_at == [about(SPAN), about(SPAN + TIMEOUT + 1)]


def test_a_result_of_verify_that_cannot_be_recorded_has_happened_all_the_same(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["unrecordable"]
    with pytest.raises(Unrecordable, match="pay happened, but its result cannot be recorded"):
        world.run(paying())
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "happened"
    assert len(bank.acts) == 1


def test_a_sync_verify_is_asked_in_a_thread(world):
    seen = []

    @effect(timeout=10)
    async def send(label: str) -> str:
        return await bank.act(label, 1.0, "k")

    @send.verify
    def sent(label: str) -> Happened[str] | None:
        seen.append(threading.current_thread())
        return bank.answer(label, "k", bank.ask(label, "k"))

    @workflow
    async def sending() -> str:
        return await send("rent")

    bank.comes["rent"] = ["lost"]
    assert world.run(sending()) == "receipt for rent"
    assert seen[0] is not threading.main_thread()
    assert bank.asked_at == [about(SPAN)]


def test_a_sync_verify_that_hangs_cannot_tell_and_nobody_waits_for_it():
    """In real time: a virtual clock stands still while a thread is at work."""
    gate, asked = threading.Event(), []

    @effect(timeout=1.0)
    async def send(label: str) -> str:
        raise ConnectionResetError(label)

    @send.verify
    def sent(label: str) -> Happened[str] | None:
        asked.append(label)
        if len(asked) == 1:
            gate.wait(30)
        return Happened("sent")

    @workflow
    async def sending() -> str:
        return await send("x")

    async def main() -> str:
        async with Outlast("memory:", effect_margin=0) as app:
            return await (await app.start(sending(), id="run")).result(timeout=20)

    try:
        assert asyncio.run(main()) == "sent"
    finally:
        gate.set()
    assert len(asked) == 2


@pytest.mark.parametrize("answers", ["raises", "rubbish"])
def test_a_sync_verify_that_cannot_tell_is_asked_again(world, answers):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = [answers, "truth"]
    assert world.run(paying_in_a_thread()) == "receipt for rent"
    assert len(bank.asked) == 2


def test_a_sync_effect_may_have_an_async_verify(world):
    @effect(timeout=10)
    def send(label: str, key: str = KEY) -> str:
        return bank.act_in_thread(label, 1.0, key)

    @send.verify
    async def sent(label: str, key: str) -> Happened[str] | None:
        await asyncio.sleep(1)
        return bank.answer(label, key, bank.ask(label, key))

    @workflow
    async def sending() -> str:
        return await send.aio("rent")

    bank.comes["rent"] = ["lost"]
    assert world.run(sending()) == "receipt for rent"


def test_verify_gets_what_it_names_of_the_recorded_arguments_defaults_too(world):
    seen = []

    @effect(timeout=10)
    async def send(to: str, amount: int, currency: str = "EUR", *, note: str = "none", key: str = KEY) -> str:
        raise ConnectionResetError

    @send.verify
    async def sent(*, currency: str, amount: int, note: str, key: str, to: str) -> Happened[str] | None:
        seen.append((to, amount, currency, note, len(key)))
        return Happened("yes")

    @workflow
    async def sending() -> str:
        return await send("ann", amount=3)

    world.run(sending())
    assert seen == [("ann", 3, "EUR", "none", 32)]


def test_verify_in_another_life_gets_the_recorded_arguments_by_their_types(world):
    seen = []

    @workflow
    async def sending() -> str:
        return await order(Receipt(3))

    @effect(timeout=10)
    async def order(receipt: Receipt) -> str:
        await asyncio.sleep(1)
        return "ordered"

    @order.verify
    async def ordered(receipt: Receipt) -> Happened[str] | None:
        seen.append(receipt)
        return Happened("ordered before")

    world.die(sending(), after=0.5)
    assert world.run(sending()) == "ordered before"
    assert seen == [Receipt(3)]


# -- neither verify nor idempotent


def test_what_nobody_can_tell_parks_the_run_and_names_the_effect_and_how_to_decide(world):
    world.die(mailing(), after=0.5)
    with pytest.raises(RunParked) as parked:
        world.run(mailing())
    assert world.clock.elapsed == about(SPAN), "not before it can be decided"
    assert len(bank.acts) == 1
    reason = str(parked.value)
    assert "mail#1: nobody can tell whether it happened" in reason
    for way in ("outlast decide run mail#1 --happened RESULT", "--did-not"):
        assert way in reason
    assert world.status() == "parked"


def test_the_reason_tells_what_the_act_raised(world):
    bank.comes["rent"] = ["broken"]
    with pytest.raises(RunParked, match=r"mail#1.*ConnectionError.*rent"):
        world.run(mailing())


async def cut(what: str) -> str:
    raise ConnectionError(f"the line went dead at {what}.")


blind = effect(timeout=TIMEOUT, name="blind")(cut)
asking = effect(timeout=TIMEOUT, name="asking")(cut)
repeated = effect(timeout=TIMEOUT, name="repeated", idempotent=True)(cut)


@asking.verify
async def _asks(what: str) -> None:
    raise LookupError(f"nobody answers of {what}.")


@pytest.mark.parametrize("fx", [blind, asking, repeated], ids=lambda fx: fx.name)
def test_a_reason_has_one_full_stop_where_the_error_brings_its_own(world, fx):
    @workflow(name=f"calls {fx.name}")
    async def calls() -> str:
        return await fx("noon")

    with pytest.raises(RunParked, match=r" noon\. Say `outlast decide") as parked:
        world.run(calls())
    assert ".." not in parked.value.reason


def test_the_hook_is_told_of_a_run_that_waits_for_a_decision(world):
    told = []
    world.settings = {"on_parked": lambda info: told.append((info.id, info.status, info.reason))}
    bank.comes["rent"] = ["broken"]
    with pytest.raises(RunParked):
        world.run(mailing())
    assert [(id, status) for id, status, _ in told] == [("run", "parked")]
    assert "mail#1" in told[0][2]


def test_a_resumed_run_is_parked_again_and_nothing_is_done(world):
    bank.comes["rent"] = ["broken"]
    with pytest.raises(RunParked):
        world.run(mailing())
    with pytest.raises(RunParked, match=r"mail#1.*nobody can tell"):
        resumed(world, mailing())
    assert len(bank.acts) == 1


def test_what_else_the_run_does_is_done_first(world):
    finished = []

    @workflow
    async def both() -> None:
        async def chain() -> None:
            for label in "abc":
                finished.append(await work(label, 50.0))

        await asyncio.gather(mail("rent"), chain())

    bank.comes["rent"] = ["broken"]
    with pytest.raises(RunParked):
        world.run(both())
    assert finished == ["a", "b", "c"]
    assert world.clock.elapsed == about(150)


def test_other_effects_of_the_run_are_done_first(world):
    @workflow
    async def both() -> None:
        await asyncio.gather(mail("rent"), pay("heat"))

    bank.comes["rent"] = ["broken"]
    bank.comes["heat"] = ["broken", "ok"]
    with pytest.raises(RunParked):
        world.run(both())
    assert [line.label for line in bank.done] == ["heat"]
    assert world.kinds().count("step") == 1


def test_a_run_that_also_sleeps_is_parked_without_waiting_for_that(world):
    @workflow
    async def both() -> None:
        await asyncio.gather(mail("rent"), sleep(86_400))

    bank.comes["rent"] = ["broken"]
    with pytest.raises(RunParked):
        world.run(both())
    assert world.clock.elapsed < 100


def test_two_unknown_effects_are_both_named(world):
    @workflow
    async def both() -> None:
        await asyncio.gather(mail("rent"), mail("heat"))

    bank.comes["rent"] = bank.comes["heat"] = ["broken"]
    with pytest.raises(RunParked, match=r"(?=.*mail#1: nobody can tell)(?=.*mail#2: nobody can tell)"):
        world.run(both())


# -- idempotent


def test_an_idempotent_effect_acts_again_under_its_key_after_a_death_once_the_first_must_be_over(world):
    bank.comes["rent"] = ["lost and hangs", "ok"]
    world.die(pushing(), after=0.5)
    assert world.run(pushing()) == "receipt for rent"
    assert bank.times == [0, about(SPAN)]
    assert len(set(bank.keys)) == 1
    assert len(bank.done) == 1


def test_an_idempotent_effect_that_raises_acts_again_with_back_off_and_does_not_wait(world):
    bank.comes["rent"] = ["lost", "broken", "ok"]
    assert world.run(pushing()) == "receipt for rent"
    assert len(set(bank.keys)) == 1
    first, second = (
        later - earlier - 1.0 for earlier, later in zip(bank.times, bank.times[1:], strict=False)
    )
    assert 0.5 <= first <= 1
    assert 1 <= second <= 2
    assert len(bank.done) == 1


def test_an_idempotent_effect_that_always_raises_is_unknown_after_three_more_acts(world):
    bank.comes["rent"] = ["lost"]
    with pytest.raises(RunParked, match=r"push#1: it has failed 4 times, at last by .*ConnectionResetError"):
        world.run(pushing())
    assert len(bank.acts) == 4


def test_an_idempotent_effect_that_is_resumed_acts_anew_as_often(world):
    bank.comes["rent"] = ["lost"] * 6 + ["ok"]
    with pytest.raises(RunParked):
        world.run(pushing())
    assert resumed(world, pushing()) == "receipt for rent"
    assert len(bank.acts) == 7
    assert len(set(bank.keys)) == 1


def test_what_an_idempotent_effect_raised_is_counted_over_lives(world):
    bank.comes["rent"] = ["lost"]
    world.die(pushing(), until=lambda: world.kinds().count("attempt") == 2)
    with pytest.raises(RunParked, match="it has failed 4 times"):
        world.run(pushing())
    assert len(bank.acts) == 4


def test_a_death_in_the_back_off_of_an_idempotent_effect_waits_for_the_last_act(world):
    bank.comes["rent"] = ["lost", "ok"]
    world.die(pushing(), until=lambda: "attempt" in world.kinds())
    world.run(pushing())
    assert bank.times == [0, about(SPAN)]


def test_an_idempotent_effect_that_can_be_verified_is_asked_first(world):
    @effect(timeout=10, idempotent=True)
    async def send(label: str, key: str = KEY) -> str:
        return await bank.act(label, 1.0, key)

    @send.verify
    async def sent(label: str, key: str) -> Happened[str] | None:
        return bank.answer(label, key, bank.ask(label, key))

    @workflow
    async def sending() -> str:
        return await send("rent")

    bank.comes["rent"] = ["lost"]
    assert world.run(sending()) == "receipt for rent"
    assert bank.asked_at == [about(SPAN)]
    assert len(bank.acts) == 1


def test_a_sync_idempotent_effect_acts_again(world):
    @workflow
    def pushing_in_sync() -> str:
        return sync_push("rent")

    bank.comes["rent"] = ["lost", "ok"]
    assert world.run(pushing_in_sync()) == "receipt for rent"
    assert len(bank.acts) == 2
    assert len(bank.done) == 1


# -- what the code makes of an open intent


def test_arguments_that_are_not_recorded_are_the_callers_own_in_every_life(world):
    from typing import Annotated

    seen = []

    @effect(timeout=10)
    async def send(client: Annotated[object, Unrecorded], label: str) -> str:
        seen.append(client)
        await asyncio.sleep(1)
        return "sent"

    @send.verify
    async def sent(client: object, label: str) -> Happened[str] | None:
        seen.append(client)
        return None

    client = object()

    @workflow
    async def sending() -> str:
        return await send(client, "x")

    send.signature._fn.__annotations__.update(client=Annotated[object, Unrecorded], label=str)
    world.die(sending(), after=0.5)
    assert world.run(sending()) == "sent"
    assert seen == [client] * 3


def test_a_certain_failure_in_the_life_after_an_open_one_asks_verify_only_for_what_is_open(world):
    bank.comes["rent"] = ["hangs", "refused", "ok"]
    world.die(paying(), after=0.5)
    assert world.run(paying()) == "receipt for rent"
    assert len(bank.asked) == 1
    assert len(bank.acts) == 3


def test_verify_that_was_added_since_sorts_out_a_parked_run(world):
    def version(*, verifies: bool):
        @effect(timeout=10)
        async def send(label: str) -> str:
            raise ConnectionResetError(label)

        if verifies:

            @send.verify
            async def sent(label: str) -> Happened[str] | None:
                return Happened(f"found {label}")

        @workflow
        async def sending() -> str:
            return await send("x")

        return sending

    with pytest.raises(RunParked):
        world.run(version(verifies=False)())
    world.restart()
    assert resumed(world, version(verifies=True)()) == "found x"


def test_a_certain_failure_never_passes_for_a_time_out(world):
    bank.comes["rent"] = ["refused"]
    with pytest.raises(Refused):
        world.run(mailing())
    assert len(bank.acts) == 3
