"""Effects that are idempotent, that nobody can verify, or whose code has changed."""

import asyncio

import pytest
from bank import (
    TIMEOUT,
    Refused,
    bank,
    mail,
    mailing,
    pay,
    paying,
    pushing,
    sync_push,
)
from resolving_tools import SPAN, about, resumed, work

from outlast import (
    KEY,
    Happened,
    RunParked,
    Unrecorded,
    effect,
    sleep,
    workflow,
)


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    yield
    bank.dies = True
    bank.gate.set()


# -- neither verify nor idempotent


def test_unknown_effect_parks_the_run_with_instructions(world):
    world.die(mailing(), after=0.5)
    with pytest.raises(RunParked) as parked:
        world.run(mailing())
    assert world.clock.elapsed == about(SPAN), "not before it can be decided"
    assert len(bank.acts) == 1
    reason = str(parked.value)
    assert "mail#1: Outlast cannot determine whether it happened" in reason
    for way in ("outlast decide run mail#1 --happened RESULT", "--did-not"):
        assert way in reason
    assert world.status() == "parked"


def test_reason_includes_the_error_of_the_act(world):
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
def test_reason_has_one_full_stop_where_the_error_brings_its_own(world, fx):
    @workflow(name=f"calls {fx.name}")
    async def calls() -> str:
        return await fx("noon")

    with pytest.raises(RunParked, match=r" noon\. Run `outlast decide") as parked:
        world.run(calls())
    assert ".." not in parked.value.reason


def test_hook_is_called_for_a_run_that_needs_a_decision(world):
    told = []
    world.settings = {"on_parked": lambda info: told.append((info.id, info.status, info.reason))}
    bank.comes["rent"] = ["broken"]
    with pytest.raises(RunParked):
        world.run(mailing())
    assert [(id, status) for id, status, _ in told] == [("run", "parked")]
    assert "mail#1" in told[0][2]


def test_resumed_run_is_parked_again_and_nothing_is_done(world):
    bank.comes["rent"] = ["broken"]
    with pytest.raises(RunParked):
        world.run(mailing())
    with pytest.raises(RunParked, match=r"mail#1.*cannot determine"):
        resumed(world, mailing())
    assert len(bank.acts) == 1


def test_other_steps_finish_before_the_run_is_parked(world):
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


def test_other_effects_finish_before_the_run_is_parked(world):
    @workflow
    async def both() -> None:
        await asyncio.gather(mail("rent"), pay("heat"))

    bank.comes["rent"] = ["broken"]
    bank.comes["heat"] = ["broken", "ok"]
    with pytest.raises(RunParked):
        world.run(both())
    assert [line.label for line in bank.done] == ["heat"]
    assert world.kinds().count("step") == 1


def test_sleeping_run_is_parked_without_waiting_for_its_timer(world):
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
    with pytest.raises(
        RunParked,
        match=r"(?=.*mail#1: Outlast cannot determine)(?=.*mail#2: Outlast cannot determine)",
    ):
        world.run(both())


# -- idempotent


def test_idempotent_effect_is_repeated_under_its_key_after_a_death(world):
    bank.comes["rent"] = ["lost and hangs", "ok"]
    world.die(pushing(), after=0.5)
    assert world.run(pushing()) == "receipt for rent"
    assert bank.times == [0, about(SPAN)]
    assert len(set(bank.keys)) == 1
    assert len(bank.done) == 1


def test_idempotent_effect_that_raises_is_retried_with_backoff(world):
    bank.comes["rent"] = ["lost", "broken", "ok"]
    assert world.run(pushing()) == "receipt for rent"
    assert len(set(bank.keys)) == 1
    first, second = (
        later - earlier - 1.0 for earlier, later in zip(bank.times, bank.times[1:], strict=False)
    )
    assert 0.5 <= first <= 1
    assert 1 <= second <= 2
    assert len(bank.done) == 1


def test_idempotent_effect_that_always_raises_becomes_unknown(world):
    bank.comes["rent"] = ["lost"]
    with pytest.raises(
        RunParked, match=r"push#1: it has failed 4 times, the last time with .*ConnectionResetError"
    ):
        world.run(pushing())
    assert len(bank.acts) == 4


def test_resumed_idempotent_effect_has_all_its_attempts_again(world):
    bank.comes["rent"] = ["lost"] * 6 + ["ok"]
    with pytest.raises(RunParked):
        world.run(pushing())
    assert resumed(world, pushing()) == "receipt for rent"
    assert len(bank.acts) == 7
    assert len(set(bank.keys)) == 1


def test_errors_of_an_idempotent_effect_count_across_restarts(world):
    bank.comes["rent"] = ["lost"]
    world.die(pushing(), until=lambda: world.kinds().count("attempt") == 2)
    with pytest.raises(RunParked, match="it has failed 4 times"):
        world.run(pushing())
    assert len(bank.acts) == 4


def test_death_during_backoff_waits_for_the_last_act(world):
    bank.comes["rent"] = ["lost", "ok"]
    world.die(pushing(), until=lambda: "attempt" in world.kinds())
    world.run(pushing())
    assert bank.times == [0, about(SPAN)]


def test_idempotent_effect_with_verify_is_verified_first(world):
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


def test_sync_idempotent_effect_is_repeated(world):
    @workflow
    def pushing_in_sync() -> str:
        return sync_push("rent")

    bank.comes["rent"] = ["lost", "ok"]
    assert world.run(pushing_in_sync()) == "receipt for rent"
    assert len(bank.acts) == 2
    assert len(bank.done) == 1


# -- what the code makes of an open intent


def test_unrecorded_arguments_come_from_the_caller(world):
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


def test_verify_is_asked_only_about_the_open_act(world):
    bank.comes["rent"] = ["hangs", "refused", "ok"]
    world.die(paying(), after=0.5)
    assert world.run(paying()) == "receipt for rent"
    assert len(bank.asked) == 1
    assert len(bank.acts) == 3


def test_added_verify_resolves_a_parked_run(world):
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


def test_declared_failure_is_not_mistaken_for_a_timeout(world):
    bank.comes["rent"] = ["refused"]
    with pytest.raises(Refused):
        world.run(mailing())
    assert len(bank.acts) == 3
