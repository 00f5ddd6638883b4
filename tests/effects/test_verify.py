"""Verify finds out whether an effect happened."""

import asyncio
import threading
from dataclasses import dataclass

import pytest
from bank import (
    TIMEOUT,
    bank,
    pay,
    paying,
    paying_in_a_thread,
)
from resolving_tools import SPAN, about, resumed

from outlast import (
    KEY,
    Happened,
    Outlast,
    RunParked,
    StepTimeout,
    Unrecordable,
    effect,
    workflow,
)
from support.waiting import WAIT_SECONDS


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    yield
    bank.dies = True
    bank.gate.set()


# -- verify


def test_result_of_verify_becomes_the_result(world):
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


def test_result_of_verify_is_recorded_by_the_effects_type(world):
    @workflow
    async def typing() -> int:
        receipt = await typed("x")
        assert isinstance(receipt, Receipt)
        return receipt.number

    assert world.run(typing()) == 7
    assert world.replays(typing()) == 7


def test_negative_verify_repeats_the_act_under_its_key(world):
    world.die(paying(), after=0.5)
    assert world.run(paying()) == "receipt for rent"
    assert len(bank.acts) == 2
    assert len(set(bank.keys)) == 1


def test_death_after_a_negative_verify_needs_no_wait(world):
    world.die(paying(), after=0.5)

    def said_no() -> bool:
        return "verify" in world.kinds()

    bank.comes["rent"] = ["refused", "ok"]
    world.die(paying(), until=lambda: "attempt" in world.kinds())
    assert said_no()
    world.run(paying())
    assert len(bank.asked) == 1


def test_act_that_never_happens_raises_its_exception(world):
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


def test_act_that_always_times_out_raises_its_timeout(world):
    bank.comes["rent"] = ["hangs"]
    with pytest.raises(StepTimeout, match="pay took longer than its timeout"):
        world.run(paying())
    assert len(bank.acts) == 4


def test_effect_with_more_retries_acts_again_more_often(world):
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


def test_inconclusive_verify_is_retried_with_backoff(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises", "raises", "raises", "truth"]
    assert world.run(paying()) == "receipt for rent"
    assert bank.asked_at == [about(SPAN + seconds) for seconds in (0, 1, 3, 7)]
    assert len(bank.acts) == 1


def test_run_is_parked_after_verify_attempts(world):
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


def test_verify_attempts_count_across_restarts(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises"]
    world.die(paying(), until=lambda: world.kinds().count("verify") == 2)
    with pytest.raises(RunParked):
        world.run(paying())
    assert len(bank.asked) == 5


def test_backoff_of_verify_continues_across_restarts(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises", "raises", "raises", "truth"]
    world.die(paying(), until=lambda: world.kinds().count("verify") == 3)
    world.run(paying())
    assert bank.asked_at == [about(SPAN + seconds) for seconds in (0, 1, 3, 7)]


def test_resumed_run_has_all_verify_attempts_again(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises"] * 9 + ["truth"]
    with pytest.raises(RunParked):
        world.run(paying())
    assert resumed(world, paying()) == "receipt for rent"
    assert len(bank.asked) == 10
    assert len(bank.acts) == 1


def test_invalid_answer_of_verify_is_inconclusive(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["rubbish"]
    with pytest.raises(RunParked, match=r"must return Happened\(result\) or None, not True"):
        world.run(paying())
    assert len(bank.acts) == 1


def test_hung_verify_is_inconclusive(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["hangs", "truth"]
    assert world.run(paying()) == "receipt for rent"
    assert bank.asked_at == [about(SPAN), about(SPAN + TIMEOUT + 1)]


def test_unrecordable_result_of_verify_counts_as_happened(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["unrecordable"]
    with pytest.raises(Unrecordable, match="pay happened, but its result cannot be recorded"):
        world.run(paying())
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "happened"
    assert len(bank.acts) == 1


def test_sync_verify_is_asked_in_a_thread(world):
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


def test_hung_sync_verify_is_inconclusive():
    """In real time: a virtual clock stands still while a thread is at work."""
    gate, asked = threading.Event(), []

    @effect(timeout=1.0)
    async def send(label: str) -> str:
        raise ConnectionResetError(label)

    @send.verify
    def sent(label: str) -> Happened[str] | None:
        asked.append(label)
        if len(asked) == 1:
            gate.wait(WAIT_SECONDS)
        return Happened("sent")

    @workflow
    async def sending() -> str:
        return await send("x")

    async def main() -> str:
        async with Outlast("memory:", effect_margin=0) as app:
            return await (await app.start(sending(), id="run")).result(timeout=WAIT_SECONDS)

    try:
        assert asyncio.run(main()) == "sent"
    finally:
        gate.set()
    assert len(asked) > 1


@pytest.mark.parametrize("answers", ["raises", "rubbish"])
def test_inconclusive_sync_verify_is_retried(world, answers):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = [answers, "truth"]
    assert world.run(paying_in_a_thread()) == "receipt for rent"
    assert len(bank.asked) == 2


def test_sync_effect_may_have_an_async_verify(world):
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


def test_verify_receives_the_arguments_that_it_names(world):
    seen = []

    @effect(timeout=10)
    async def send(
        to: str, amount: int, currency: str = "EUR", *, note: str = "none", key: str = KEY
    ) -> str:
        raise ConnectionResetError

    @send.verify
    async def sent(
        *, currency: str, amount: int, note: str, key: str, to: str
    ) -> Happened[str] | None:
        seen.append((to, amount, currency, note, len(key)))
        return Happened("yes")

    @workflow
    async def sending() -> str:
        return await send("ann", amount=3)

    world.run(sending())
    assert seen == [("ann", 3, "EUR", "none", 32)]


def test_verify_decodes_recorded_arguments_after_a_restart(world):
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
