"""A person says what came of an effect of which nobody could tell: it happened, it did not, or the run is to be undone."""

import asyncio
from dataclasses import dataclass

import pytest
from bank import MARGIN, TIMEOUT, bank, mail, pay, push

from outlast import (
    Outlast,
    OutlastError,
    RunCancelled,
    RunParked,
    SettingsError,
    UnknownEffect,
    UnknownRun,
    Unrecordable,
    WrongStatus,
    effect,
    sleep,
    sync,
    workflow,
)
from outlast.store.verbs import Resume

SPAN = TIMEOUT + MARGIN


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    bank.comes["rent"], bank.comes["heat"], bank.comes["never"] = (
        ["broken", "ok"],
        ["broken", "ok"],
        ["broken"],
    )


@workflow
async def mailing() -> str:
    return await mail("rent")


@workflow
async def two() -> list[str]:
    return await asyncio.gather(mail("rent"), mail("heat"))


def park(world, call, id="run") -> None:
    with pytest.raises(RunParked):
        world.run(call, id=id)


def decide(world, *args, **what) -> None:
    world.do(lambda app: app.decide(*args, **what))


# -- what can be said


def test_happened_is_confirmed_with_that_result_and_the_run_goes_on(world):
    park(world, mailing())
    decide(world, "run", "mail", happened="found the receipt")
    assert world.status() == "queued"
    assert world.run(mailing()) == "found the receipt"
    assert len(bank.acts) == 1
    assert world.kinds() == ["intent", "attempt", "decision", "step"]
    assert world.replays(mailing()) == "found the receipt"


def test_did_not_has_it_done_again_under_its_key_with_all_its_retries(world):
    park(world, mailing())
    bank.comes["rent"] = ["refused", "refused", "ok"]
    decide(world, "run", "mail", did_not=True)
    assert world.run(mailing()) == "receipt for rent"
    assert len(bank.acts) == 4
    assert world.replays(mailing()) == "receipt for rent"


def test_did_not_is_not_acted_on_before_the_last_act_must_be_over(world):
    """A person may be quicker than an act that goes on at the other side."""
    park(world, pushing())
    (seen,) = world.do(lambda app: app.effects("run"))
    assert world.clock.elapsed < bank.times[-1] + SPAN
    bank.comes["never"] = ["ok"]
    decide(world, "run", "push", did_not=True, intent=seen.intent)
    assert world.run(pushing()) == "receipt for never"
    assert bank.times[4] == pytest.approx(bank.times[3] + SPAN, abs=0.2)


def test_a_decision_survives_a_death(world):
    park(world, mailing())
    decide(world, "run", "mail", happened="found")
    world.die(mailing(), after=0.0)
    assert world.run(mailing()) == "found"
    assert len(bank.acts) == 1


def test_a_decision_is_for_the_act_that_was_decided_and_not_for_the_next(world):
    park(world, mailing())
    bank.comes["rent"] = ["broken"]
    decide(world, "run", "mail", did_not=True)
    with pytest.raises(RunParked, match="mail#1"):
        world.run(mailing())
    assert len(bank.acts) == 2, "done again once, and open again"


def test_compensate_takes_it_for_happened_and_undoes_the_run(world):
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
    with pytest.raises(RunCancelled, match="somebody decided to undo it, at order#1"):
        world.run(ordering())
    assert undone == [("order 7", "tea")]
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "undone"


def test_compensate_without_a_result_undoes_with_none_and_blames_nobody(world):
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
    with pytest.raises(RunCancelled, match="somebody decided to undo it, at order#1"):
        world.run(ordering())
    assert undone == [(None, "tea")]
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "undone"
    assert "nobody said with which result effect order happened" in info.error


def test_compensate_of_an_effect_that_has_no_compensation_is_refused(world):
    park(world, mailing())
    with pytest.raises(OutlastError, match="mail has no compensation"):
        decide(world, "run", "mail", compensate=True)
    assert world.status() == "parked"


@pytest.mark.parametrize(
    "said", [{}, {"happened": "x", "did_not": True}, {"did_not": True, "compensate": True}], ids=str
)
def test_just_one_thing_must_be_said(world, said):
    park(world, mailing())
    with pytest.raises(SettingsError, match="say one of"):
        decide(world, "run", "mail", **said)
    assert world.status() == "parked"


def test_none_is_a_result_too(world):
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
def test_a_result_that_the_effect_could_not_have_given_is_refused_before_anything_is_written(world, happened):
    park(world, typing())
    kinds = world.kinds()
    with pytest.raises(Unrecordable, match="is no result of effect typed"):
        decide(world, "run", "typed", happened=happened)
    assert (world.status(), world.kinds()) == ("parked", kinds)


@pytest.mark.parametrize("happened", [Receipt(7), {"number": 7}], ids=["typed", "plain"])
def test_a_result_may_be_given_as_it_is_or_as_plain_json(world, happened):
    park(world, typing())
    decide(world, "run", "typed", happened=happened)
    assert world.run(typing()) == 7


def test_a_result_that_was_decided_where_the_effect_is_not_known_and_does_not_fit_can_be_decided_again(
    world, monkeypatch
):
    @workflow
    async def careful() -> int:
        return (await typed("x")).number

    park(world, careful())
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("outlast.app.decide.find", lambda *_: None)
        decide(world, "run", "typed", happened="a text")
    with pytest.raises(RunParked, match='decided that it happened, but "a text" is no result of it'):
        world.run(careful())
    assert world.do(lambda app: app.effects("run"))[0].state == "open"
    decide(world, "run", "typed", happened={"number": 7})
    assert world.run(careful()) == 7
    assert world.replays(careful()) == 7


def test_a_result_that_cannot_be_recorded_is_refused_before_anything_is_written(world):
    park(world, mailing())
    with pytest.raises(Unrecordable):
        decide(world, "run", "mail", happened=object())
    assert world.status() == "parked"


def test_a_result_that_is_too_large_is_refused_before_anything_is_written(world):
    world.settings = {"value_size_max": 1000}
    park(world, mailing())
    with pytest.raises(OutlastError, match="value_size_max"):
        decide(world, "run", "mail", happened="x" * 2000)
    assert world.status() == "parked"


# -- of which run, and which effect


def test_a_run_that_there_is_not_is_unknown(world):
    with pytest.raises(UnknownRun):
        decide(world, "nobody", "mail", did_not=True)


def test_only_of_a_parked_run_can_it_be_decided(world):
    world.run(paying(), id="done")
    with pytest.raises(WrongStatus, match="'done' is done"):
        decide(world, "done", "pay", did_not=True)

    async def main(app):
        await app.start(sleeping(), id="running")
        await asyncio.sleep(1)
        with pytest.raises(WrongStatus, match="running"):
            await app.decide("running", "pay", did_not=True)

    world.do(main)


@workflow
async def paying() -> str:
    return await pay("ok")


@workflow
async def sleeping() -> None:
    await sleep(100)


def test_an_effect_that_there_is_not_is_refused_and_those_that_there_are_are_listed(world):
    park(world, two())
    with pytest.raises(UnknownEffect) as refused:
        decide(world, "run", "male", did_not=True)
    assert sorted(refused.value.there) == ["mail#1", "mail#2"]
    assert "mail#1" in str(refused.value)
    assert (refused.value.id, refused.value.effect) == ("run", "male")


def test_an_effect_of_which_all_is_known_cannot_be_decided(world):
    @workflow
    async def both() -> None:
        await pay("ok")
        await mail("rent")

    park(world, both())
    with pytest.raises(UnknownEffect) as refused:
        decide(world, "run", "pay", did_not=True)
    assert refused.value.there == ["mail#1"]


def test_a_parked_run_with_nothing_to_decide_says_so(world):
    @workflow(name="changed")
    async def first() -> str:
        await pay("ok")
        return await sleep(100) or "done"

    @workflow(name="changed")
    async def second() -> str:
        return "changed"

    world.die(first(), after=50)
    park(world, second())
    with pytest.raises(UnknownEffect, match="It does on none"):
        decide(world, "run", "pay", did_not=True)


def test_the_name_of_two_unknown_effects_is_not_enough(world):
    park(world, two())
    with pytest.raises(UnknownEffect) as refused:
        decide(world, "run", "mail", did_not=True)
    assert sorted(refused.value.there) == ["mail#1", "mail#2"]
    assert world.status() == "parked"


def test_two_unknown_effects_are_decided_one_after_the_other_by_their_places(world):
    park(world, two())
    decide(world, "run", "mail#2", happened="the second")
    with pytest.raises(RunParked, match=r"mail#1") as parked:
        world.run(two())
    assert "mail#2" not in str(parked.value)
    decide(world, "run", "mail", happened="the first")
    assert world.run(two()) == ["the first", "the second"]
    assert len(bank.acts) == 2
    assert world.replays(two()) == ["the first", "the second"]


# -- who comes too late


def test_what_was_decided_cannot_be_decided_again(world):
    park(world, mailing())
    decide(world, "run", "mail", happened="found")
    with pytest.raises(WrongStatus, match="queued"):
        decide(world, "run", "mail", did_not=True)
    assert world.run(mailing()) == "found"


def test_of_two_who_decide_at_once_one_is_refused(world):
    park(world, mailing())

    async def main(app):
        return await asyncio.gather(
            app.decide("run", "mail", happened="found"),
            app.decide("run", "mail", did_not=True),
            return_exceptions=True,
        )

    outcomes = world.do(main)
    assert [type(outcome) for outcome in outcomes if outcome is not None] == [WrongStatus]
    assert world.kinds().count("decision") == 1


def test_a_decision_on_what_its_person_did_not_see_is_refused(world):
    """Between the look and the word, the run was resumed and has acted again: the word is not about that act."""
    park(world, pushing())
    (seen,) = world.do(lambda app: app.effects("run"))

    async def main(app):
        writer = app._house.writer
        ask = writer.ask

        async def later(verb):
            if type(verb).__name__ == "Decide":
                del writer.ask
                assert await ask(Resume("run", "token")) is None
                with pytest.raises(RunParked):
                    await (await app.start(pushing(), id="run")).result(timeout=1e5)
            return await ask(verb)

        writer.ask = later
        with pytest.raises(WrongStatus, match="has gone on meanwhile: look at it again"):
            await app.decide("run", "push", happened="found", intent=seen.intent)

    world.do(main)
    assert world.status() == "parked"
    assert "decision" not in world.kinds()


@workflow
async def pushing() -> str:
    return await push("never")


def test_of_what_was_tried_again_it_must_be_said_that_the_last_act_was_seen_and_only_that_can_be_decided(
    world,
):
    park(world, pushing())
    decide(world, "run", "push", did_not=True)
    park(world, pushing())
    (seen,) = world.do(lambda app: app.effects("run"))
    said = f"`outlast decide run push#1 --intent {seen.intent} --happened RESULT`"
    assert said in world.store.run("run").reason
    with pytest.raises(SettingsError, match=f"was tried again since.*intent={seen.intent}"):
        decide(world, "run", "push", happened="found")
    with pytest.raises(WrongStatus, match="Look at it again"):
        decide(world, "run", "push", happened="found", intent=1)
    assert world.status() == "parked"
    decide(world, "run", "push", happened="found", intent=seen.intent)
    assert world.run(pushing()) == "found"


def test_acts_that_nobody_has_looked_at_in_between_are_decided_as_one(world):
    park(world, pushing())
    decide(world, "run", "push", happened="found")
    assert world.run(pushing()) == "found"


def test_what_was_seen_before_somebody_resumed_the_run_cannot_be_decided_any_more(world):
    park(world, pushing())
    (seen,) = world.do(lambda app: app.effects("run"))
    world.do(lambda app: app.resume("run"))
    park(world, pushing())
    with pytest.raises(WrongStatus, match="Look at it again"):
        decide(world, "run", "push#1", happened="found", intent=seen.intent)
    assert world.status() == "parked"


# -- other things that became of it meanwhile


def test_a_decision_comes_before_verify(world):
    bank.comes["rent"] = ["lost"]
    bank.answers["rent"] = ["raises"]

    @workflow
    async def verified() -> str:
        return await pay("rent")

    park(world, verified())
    asked = len(bank.asked)
    decide(world, "run", "pay", happened="found by hand")
    assert world.run(verified()) == "found by hand"
    assert len(bank.asked) == asked


def test_a_decision_of_one_lets_the_others_be_tried_anew(world):
    """As a resume does: whoever decides has looked at the run."""
    bank.comes["rent"], bank.comes["heat"] = ["lost"], ["broken"]
    bank.answers["rent"] = ["raises"] * 5 + ["truth"]

    @workflow
    async def both() -> list[str]:
        return await asyncio.gather(pay("rent"), mail("heat"))

    park(world, both())
    decide(world, "run", "mail", happened="sent")
    assert world.run(both()) == ["receipt for rent", "sent"]


def test_the_clock_of_the_run_stands_still_while_it_is_parked(world):
    @workflow
    async def both() -> str:
        async with asyncio.timeout(100):
            return await mail("rent")

    park(world, both())
    world.clock.advance(1000)
    decide(world, "run", "mail", did_not=True)
    assert world.run(both()) == "receipt for rent"


# -- looking


def test_effects_are_shown_in_their_order_with_what_became_of_each(world):
    @workflow
    async def several() -> None:
        await pay("ok")
        bank.comes["no"] = ["refused"]
        try:
            await pay("no")
        except Exception:
            await mail("rent")

    park(world, several())
    shown = world.do(lambda app: app.effects("run"))
    assert [(one.place, one.effect, one.state) for one in shown] == [
        ("pay#1", "pay", "happened"),
        ("pay#2", "pay", "did not happen"),
        ("mail#1", "mail", "open"),
    ]
    happened, did_not, opened = shown
    assert (happened.result, happened.key, happened.arguments) == (
        '"receipt for ok"',
        bank.keys[0],
        '{"label":"ok"}',
    )
    assert "Refused" in did_not.error
    assert "ConnectionError: rent" in opened.error
    assert happened.since.timestamp() == world.clock.start
    assert opened.compensation is None


def test_a_run_without_effects_has_none_to_show_and_one_that_is_not_there_is_unknown(world):
    world.run(sleeping())
    assert world.do(lambda app: app.effects("run")) == []
    with pytest.raises(UnknownRun):
        world.do(lambda app: app.effects("nobody"))


def test_the_sync_face_decides_and_shows_too(tmp_path):
    address = f"sqlite:///{tmp_path}/sync.db"

    @effect(timeout=0.01)
    def once(what: str) -> str:
        raise ConnectionResetError(what)

    @workflow
    def trying() -> str:
        return once("x")

    with sync.Outlast(address, effect_margin=0) as app:
        with pytest.raises(RunParked):
            app.start(trying(), id="run").result(timeout=20)
        (info,) = app.effects("run")
        assert (info.place, info.state) == ("once#1", "open")
        with pytest.raises(UnknownEffect):
            app.decide("run", "twice", did_not=True)
        app.decide("run", "once", happened="found")
        assert app.start(trying(), id="run").result(timeout=20) == "found"
    assert Outlast(address).settings.store == address
