"""An effect has one idempotency key per place and run, stable across attempts and restarts."""

import asyncio
import json
import re

import pytest
from bank import Refused, bank, pay, push

from outlast import (
    KEY,
    Happened,
    NotInRun,
    RunFailed,
    current,
    effect,
    sleep,
    step,
    workflow,
)


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)


@workflow
async def one() -> str:
    return await pay("rent")


@workflow
async def twice() -> list[str]:
    return [await pay("rent"), await pay("rent")]


def recorded_keys(world, id="run") -> list[str]:
    return [json.loads(entry.value)["key"] for entry in world.journal(id) if entry.kind == "intent"]


def test_act_receives_the_key_of_its_intent(world):
    world.run(one())
    assert recorded_keys(world) == bank.keys
    assert re.fullmatch(r"[0-9a-f]{32}", bank.keys[0])


def test_key_is_stable_across_attempts(world):
    bank.comes["rent"] = ["refused", "broken", "refused", "ok"]
    world.run(workflow(name="patient")(three_retries)())
    assert len(bank.acts) == 4
    assert len(set(bank.keys)) == 1


async def three_retries() -> str:
    return await patient_pay("rent")


@effect(timeout=10, failed_on=(Refused, ConnectionError), retries=3)
async def patient_pay(label: str, key: str = KEY) -> str:
    return await bank.act(label, 1.0, key)


def test_key_is_stable_across_restarts(world):
    world.die(one(), after=0.5)
    world.die(one(), after=20)
    assert len(bank.acts) == 2, "the second life asked, and acted again"
    world.run(one())
    assert len(set(bank.keys)) == 1
    assert {line.key for line in bank.asked} == set(bank.keys)
    assert len(bank.done) == 1


def test_two_effects_with_the_same_arguments_have_two_keys(world):
    world.run(twice())
    assert len(bank.done) == 2
    assert len(set(bank.keys)) == 2


def test_two_runs_have_keys_of_their_own(world):
    world.run(one(), id="a")
    world.run(one(), id="b")
    assert len(set(bank.keys)) == 2


def test_second_effect_does_not_get_the_key_of_the_first_after_a_death(world):
    world.die(twice(), until=lambda: len(bank.acts) == 2)
    first, second = bank.keys
    world.run(twice())
    assert bank.keys == [first, second, second]
    assert len(bank.done) == 2


def test_keys_in_a_gather_are_stable_across_restarts(world):
    @workflow
    async def several() -> list[str]:
        return await asyncio.gather(*(pay(label, seconds) for label, seconds in seconds_of.items()))

    seconds_of = {"c": 3.0, "a": 1.0, "b": 2.0}
    world.die(several(), after=1.5)
    before = {line.label: line.key for line in bank.acts}
    assert world.run(several()) == ["receipt for c", "receipt for a", "receipt for b"]
    assert len(set(before.values())) == 3
    assert {line.label: line.key for line in bank.acts} == before
    assert sorted(line.label for line in bank.done) == ["a", "b", "c"]
    assert sorted(bank.labels) == ["a", "b", "b", "c", "c"], "what was confirmed is not done again"


def test_keys_in_a_task_group_are_stable_across_restarts(world):
    @workflow
    async def grouped() -> list[str]:
        async def later(label: str, delay: float) -> str:
            await sleep(delay)
            return await pay(label)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(later("slow", 2)), group.create_task(later("quick", 1))]
        return [task.result() for task in tasks]

    world.die(grouped(), after=2.5)
    before = {line.label: line.key for line in bank.acts}
    assert world.run(grouped()) == ["receipt for slow", "receipt for quick"]
    assert {line.label: line.key for line in bank.acts} == before
    assert [line.label for line in bank.done] == ["quick", "slow"]


# -- the caller's own


def test_key_of_the_callers_own_is_used_by_the_act_and_by_verify(world):
    @workflow
    async def own() -> str:
        return await pay("rent", key="invoice-7")

    world.die(own(), after=0.5)
    world.run(own())
    assert bank.keys == ["invoice-7", "invoice-7"]
    assert [line.key for line in bank.asked] == ["invoice-7"]
    assert recorded_keys(world) == ["invoice-7", "invoice-7"]


def test_key_may_be_passed_by_position(world):
    @workflow
    async def own() -> str:
        return await pay("rent", 1.0, "invoice-7")

    world.run(own())
    assert bank.keys == ["invoice-7"]


@pytest.mark.parametrize(
    "call",
    [lambda: pay("rent", key=KEY), lambda: pay("rent", 1.0, KEY)],
    ids=["by name", "by position"],
)
def test_passing_the_key_constant_gives_no_key(world, call):
    @workflow
    async def explicit() -> str:
        return await call()

    world.die(explicit(), after=0.5)
    world.run(explicit())
    assert len(set(bank.keys)) == 1
    assert re.fullmatch(r"[0-9a-f]{32}", bank.keys[0])
    assert recorded_keys(world) == bank.keys


def test_caller_may_reuse_its_own_key(world):
    @workflow
    async def own() -> list[str]:
        return [await push("rent", key="k"), await push("rent", key="k")]

    assert world.run(own()) == ["receipt for rent", "receipt for rent"]
    assert bank.keys == ["k", "k"]
    assert len(bank.done) == 1


def test_key_parameter_may_have_any_name(world):
    got = []

    @effect(timeout=10)
    async def send(label: str, token: str = KEY) -> str:
        got.append(token)
        await asyncio.sleep(1)
        return "sent"

    @send.verify
    async def was_sent(label: str, idempotency: str = KEY) -> Happened[str] | None:
        got.append(idempotency)
        return Happened("sent before")

    @workflow
    async def sending() -> str:
        return await send("x")

    world.die(sending(), after=0.5)
    assert world.run(sending()) == "sent before"
    assert len(got) == 2
    assert len(set(got)) == 1


def test_verify_gets_a_key_though_the_effect_takes_none(world):
    got = []

    @effect(timeout=10)
    async def send(label: str) -> None:
        await asyncio.sleep(1)

    @send.verify
    async def was_sent(key: str = KEY) -> Happened[None] | None:
        got.append(key)
        return Happened(None)

    @workflow
    async def sending() -> None:
        await send("x")

    world.die(sending(), after=0.5)
    world.run(sending())
    assert got == recorded_keys(world)


def test_retry_repeats_a_failed_effect_under_a_new_key(world):
    """A server that refused a request under a key may repeat that answer for good."""

    @workflow
    async def strict() -> str:
        return await push("rent")

    bank.comes["rent"] = ["refused", "refused", "ok"]
    with pytest.raises(Exception, match="rent"):
        world.run(strict())
    world.do(lambda app: app.retry("run"))
    assert world.run(strict()) == "receipt for rent"
    assert bank.keys[0] == bank.keys[1] != bank.keys[2]


def test_retry_does_not_repeat_what_happened(world):
    broken = [True]

    @workflow
    async def then_fails() -> str:
        receipt = await pay("rent")
        if broken:
            raise ValueError("after it")
        return receipt

    with pytest.raises(ValueError, match="after it"):
        world.run(then_fails())
    broken.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(then_fails()) == "receipt for rent"
    assert len(bank.acts) == 1


def test_retry_repeats_a_doubtful_effect_under_its_old_key(world):
    """The first may have happened: only under its key is the second the same."""
    broken = [True]

    @step
    async def other() -> str:
        await asyncio.sleep(1.2)
        if broken:
            raise ValueError("another one failed")
        return "ok"

    @workflow
    async def grouped() -> str:
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(push("rent"))
            group.create_task(other())
        return pushing.result()

    bank.comes["rent"] = ["lost", "ok"]
    with pytest.raises(RunFailed, match="TaskGroup"):
        world.run(grouped())
    assert len(bank.acts) == 2, "repeated, since it may have happened"
    broken.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(grouped()) == "receipt for rent"
    assert bank.keys[0] == bank.keys[1]
    assert len(bank.done) == 1


def test_key_of_the_act_is_in_its_context(world):
    seen: list[str] = []

    @effect(timeout=5)
    async def send(key: str = KEY) -> None:
        seen.append(key)
        seen.append(current().key)

    @step
    async def plain() -> str:
        with pytest.raises(NotInRun, match="only effects have keys"):
            _ = current().key
        return "plain"

    @workflow
    async def sends() -> str:
        await send()
        return await plain()

    assert world.run(sends()) == "plain"
    assert len(seen) == 2
    assert len(set(seen)) == 1


def test_key_in_workflow_code_is_refused(world):
    @workflow
    async def asks() -> str:
        return current().key

    with pytest.raises(NotInRun, match="only effects have keys"):
        world.run(asks())
