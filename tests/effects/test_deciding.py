"""A person decides whether an effect happened, and the run continues."""

from dataclasses import dataclass

import pytest
from bank import MARGIN, TIMEOUT, bank
from deciding_tools import decide, mailing, park, pushing

from outlast import (
    OutlastError,
    RunCancelled,
    RunParked,
    SettingsError,
    Unrecordable,
    effect,
    workflow,
)

SPAN = TIMEOUT + MARGIN


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    bank.comes["rent"], bank.comes["heat"], bank.comes["never"] = (
        ["broken", "ok"],
        ["broken", "ok"],
        ["broken"],
    )


# -- what can be said


def test_happened_confirms_the_result_and_continues(world):
    park(world, mailing())
    decide(world, "run", "mail", happened="found the receipt")
    assert world.status() == "queued"
    assert world.run(mailing()) == "found the receipt"
    assert len(bank.acts) == 1
    assert world.kinds() == ["intent", "attempt", "decision", "step"]
    assert world.replays(mailing()) == "found the receipt"


def test_did_not_repeats_the_effect_under_its_key(world):
    park(world, mailing())
    bank.comes["rent"] = ["refused", "refused", "ok"]
    decide(world, "run", "mail", did_not=True)
    assert world.run(mailing()) == "receipt for rent"
    assert len(bank.acts) == 4
    assert world.replays(mailing()) == "receipt for rent"


def test_did_not_waits_until_the_last_act_must_be_over(world):
    """A person may be quicker than an act that goes on at the other side."""
    park(world, pushing())
    (seen,) = world.do(lambda app: app.effects("run"))
    assert world.clock.elapsed < bank.times[-1] + SPAN
    bank.comes["never"] = ["ok"]
    decide(world, "run", "push", did_not=True, intent=seen.intent)
    assert world.run(pushing()) == "receipt for never"
    assert bank.times[4] == pytest.approx(bank.times[3] + SPAN, abs=0.2)


def test_decision_survives_a_death(world):
    park(world, mailing())
    decide(world, "run", "mail", happened="found")
    world.die(mailing(), after=0.0)
    assert world.run(mailing()) == "found"
    assert len(bank.acts) == 1


def test_decision_does_not_apply_to_the_next_act(world):
    park(world, mailing())
    bank.comes["rent"] = ["broken"]
    decide(world, "run", "mail", did_not=True)
    with pytest.raises(RunParked, match="mail#1"):
        world.run(mailing())
    assert len(bank.acts) == 2, "done again once, and open again"


def test_compensate_undoes_the_run(world):
    undone = []

    @effect(timeout=10)
    async def order(what: str) -> str:
        raise ConnectionResetError(what)

    @order.compensate
    async def cancel_order(number: str, what: str) -> None:
        undone.append((number, what))

    @workflow
    async def ordering() -> str:
        return await order("tea")

    park(world, ordering())
    decide(world, "run", "order", compensate=True, result="order 7")
    with pytest.raises(RunCancelled, match="a person decided to compensate it, at order#1"):
        world.run(ordering())
    assert undone == [("order 7", "tea")]
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "undone"


def test_compensate_without_a_result_passes_none(world):
    undone = []

    @effect(timeout=10)
    async def order(what: str) -> str:
        raise ConnectionResetError(what)

    @order.compensate
    async def cancel_order(number: str | None, what: str) -> None:
        undone.append((number, what))

    @workflow
    async def ordering() -> str:
        return await order("tea")

    park(world, ordering())
    decide(world, "run", "order", compensate=True)
    with pytest.raises(RunCancelled, match="a person decided to compensate it, at order#1"):
        world.run(ordering())
    assert undone == [(None, "tea")]
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "undone"
    assert "the decision did not give the result of effect order" in info.error


def test_compensate_of_an_effect_that_has_no_compensation_is_refused(world):
    park(world, mailing())
    with pytest.raises(OutlastError, match="mail has no compensation"):
        decide(world, "run", "mail", compensate=True)
    assert world.status() == "parked"


@pytest.mark.parametrize(
    "said", [{}, {"happened": "x", "did_not": True}, {"did_not": True, "compensate": True}], ids=str
)
def test_exactly_one_decision_must_be_given(world, said):
    park(world, mailing())
    with pytest.raises(SettingsError, match="pass one of"):
        decide(world, "run", "mail", **said)
    assert world.status() == "parked"


def test_none_is_a_valid_result(world):
    @effect(timeout=10)
    async def post(what: str) -> None:
        raise ConnectionResetError(what)

    @workflow
    async def posting() -> str:
        return f"posted {await post('x')}"

    park(world, posting())
    decide(world, "run", "post", happened=None)
    assert world.run(posting()) == "posted None"
    assert world.replays(posting()) == "posted None"


# -- its result is checked


@dataclass
class Receipt:
    number: int


@effect(timeout=10)
async def typed(what: str) -> Receipt:
    raise ConnectionResetError(what)


@workflow
async def typing() -> int:
    return (await typed("x")).number


@pytest.mark.parametrize("happened", ["a text", {"number": "three"}, {}, None], ids=str)
def test_result_of_the_wrong_type_is_refused_before_any_write(world, happened):
    park(world, typing())
    kinds = world.kinds()
    with pytest.raises(Unrecordable, match="is not a result of effect typed"):
        decide(world, "run", "typed", happened=happened)
    assert (world.status(), world.kinds()) == ("parked", kinds)


@pytest.mark.parametrize("happened", [Receipt(7), {"number": 7}], ids=["typed", "plain"])
def test_result_may_be_given_as_it_is_or_as_plain_json(world, happened):
    park(world, typing())
    decide(world, "run", "typed", happened=happened)
    assert world.run(typing()) == 7


def test_wrong_result_from_a_process_without_the_code_can_be_corrected(world, monkeypatch):
    @workflow
    async def careful() -> int:
        return (await typed("x")).number

    park(world, careful())
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("outlast.engine.decisions.find", lambda *_: None)
        decide(world, "run", "typed", happened="a text")
    with pytest.raises(
        RunParked, match='decided that it happened, but "a text" is not a result of it'
    ):
        world.run(careful())
    assert world.do(lambda app: app.effects("run"))[0].state == "open"
    decide(world, "run", "typed", happened={"number": 7})
    assert world.run(careful()) == 7
    assert world.replays(careful()) == 7


def test_unrecordable_result_is_refused_before_any_write(world):
    park(world, mailing())
    with pytest.raises(Unrecordable):
        decide(world, "run", "mail", happened=object())
    assert world.status() == "parked"


def test_oversized_result_is_refused_before_any_write(world):
    world.settings = {"value_size_max": 1000}
    park(world, mailing())
    with pytest.raises(OutlastError, match="value_size_max"):
        decide(world, "run", "mail", happened="x" * 2000)
    assert world.status() == "parked"
