"""An effect records its intent, acts once, and records what came of it."""

import asyncio
import json
from dataclasses import dataclass

import pytest
from bank import (
    MARGIN,
    TIMEOUT,
    Refused,
    bank,
    mailing,
    pay,
    paying,
    pushing,
)

from outlast import (
    KEY,
    RunDead,
    RunParked,
    current,
    effect,
    workflow,
)


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    yield
    bank.dies = True
    bank.gate.set()


# -- intent, act, confirm


def test_intent_is_durable_before_the_act_and_the_outcome_after(world):
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


def test_intent_records_all_that_recovery_needs(world):
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


def test_confirmed_effect_is_never_repeated(world):
    assert world.run(paying()) == "receipt for rent"
    assert world.replays(paying()) == "receipt for rent"
    assert len(bank.acts) == 1


def test_effect_is_confirmed_before_the_next_begins(world):
    @workflow
    async def two() -> None:
        await pay("a")
        await pay("b")

    world.run(two())
    assert world.kinds() == ["intent", "step", "intent", "step"]


def test_act_receives_the_recorded_arguments(world):
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


def test_body_of_an_effect_knows_its_run_and_its_attempt(world):
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


def test_effect_that_kills_its_worker_becomes_a_dead_letter(world):
    bank.comes["rent"] = ["hangs"]
    for death in range(5):
        world.die(pushing(), until=lambda: len(bank.acts) > death, gap=1000)
    with pytest.raises(RunDead):
        world.run(pushing())
    assert len(bank.acts) == 5


# -- slow stores


def test_slow_intent_is_renewed_before_the_act(world):
    """The wait after a death counts from the last intent, and must not be over while the act is under way."""
    delays = [MARGIN, MARGIN, 0.0]

    async def main(app):
        slow(app, "intent", delays)
        return await (await app.start(paying(), id="run")).result()

    assert world.do(main) == "receipt for rent"
    assert world.kinds() == ["intent", "intent", "intent", "step"]
    intents = [entry.at for entry in world.journal() if entry.kind == "intent"]
    assert bank.clock.start + bank.times[0] - intents[-1] <= MARGIN / 2


def test_declared_failure_after_a_slow_intent_is_final(world):
    bank.comes["rent"] = ["refused"]

    async def main(app):
        slow(app, "intent", [MARGIN, 0.0])
        return await (await app.start(mailing(), id="run")).result(timeout=1e5)

    with pytest.raises(Refused):
        world.do(main)
    assert len(bank.acts) == 3


def test_run_is_released_when_intents_stay_too_slow(world):
    async def main(app):
        slow(app, "intent", [MARGIN])
        run = await app.start(paying(), id="run")
        await asyncio.sleep(5 * MARGIN + 1)
        app._open.services.store.enqueue = app._open.writer.enqueue
        return await run.result()

    assert world.do(main) == "receipt for rent"
    assert bank.times[0] >= 5 * MARGIN
    assert len(bank.acts) == 1


def slow(app, kind: str, delays: list[float]) -> None:
    """Entries of this kind reach the store so much later: its writer is held up."""
    store = app._open.services.store
    put = store.enqueue

    def later(command, done, **options):
        if getattr(command, "kind", None) == kind:
            app._open.loop.call_later(
                delays.pop(0) if len(delays) > 1 else delays[0], put, command, done
            )
        else:
            put(command, done, **options)

    store.enqueue = later


# -- exceptions that mean that it did not happen


def test_declared_failure_is_retried_without_verify(world):
    bank.comes["rent"] = ["refused", "refused", "ok"]
    assert world.run(paying()) == "receipt for rent"
    assert world.kinds() == ["intent", "attempt", "intent", "attempt", "intent", "step"]
    assert bank.asked == []
    first, second = (
        later - earlier - 1.0 for earlier, later in zip(bank.times, bank.times[1:], strict=False)
    )
    assert 0.5 <= first <= 1
    assert 1 <= second <= 2


def test_last_failure_reaches_the_workflow(world):
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


def test_attempts_count_across_restarts(world):
    bank.comes["rent"] = ["refused"]
    world.die(paying(), until=lambda: "attempt" in world.kinds())
    with pytest.raises(Refused):
        world.run(paying())
    assert len(bank.acts) == 3
    assert bank.asked == []


def test_death_during_backoff_needs_neither_wait_nor_verify(world):
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


def test_declared_failure_without_retries_is_the_outcome(world):
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


def test_expired_timeout_is_unknown_even_if_failed_on_has_timeouts(world):
    bank.comes["rent"] = ["hangs"]
    with pytest.raises(RunParked, match=r"mail#1.*took longer than its timeout"):
        world.run(mailing())
    assert len(bank.acts) == 1


def test_timeout_raised_by_the_act_follows_failed_on(world):
    bank.comes["rent"] = ["late", "ok"]
    assert world.run(mailing()) == "receipt for rent"
    assert len(bank.acts) == 2


def test_declared_failure_does_not_settle_an_earlier_unknown_act(world):
    """The other side refuses the second because it has the first."""
    bank.comes["rent"] = ["lost", "refused"]
    with pytest.raises(RunParked, match=r"push#1"):
        world.run(pushing())
    assert [line.label for line in bank.done] == ["rent"]
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "open"


def test_declared_failure_after_verify_is_final(world):
    bank.comes["rent"] = ["broken", "refused"]
    with pytest.raises(Refused):
        world.run(paying())
    assert len(bank.asked) == 1
    assert len(bank.acts) == 3
