"""Decisions that are refused, that come too late, and how an effect is shown."""

import asyncio

import pytest
from bank import bank, mail, pay
from deciding_tools import decide, mailing, park, pushing

from outlast import (
    Outlast,
    RunParked,
    SettingsError,
    UnknownEffect,
    UnknownRun,
    WrongStatus,
    effect,
    sleep,
    sync,
    workflow,
)
from outlast.store.commands import Resume


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    bank.comes["rent"], bank.comes["heat"], bank.comes["never"] = (
        ["broken", "ok"],
        ["broken", "ok"],
        ["broken"],
    )


@workflow
async def two() -> list[str]:
    return await asyncio.gather(mail("rent"), mail("heat"))


# -- of which run, and which effect


def test_decision_on_an_unknown_run_is_refused(world):
    with pytest.raises(UnknownRun):
        decide(world, "nobody", "mail", did_not=True)


def test_a_repeated_decision_does_nothing(world):
    park(world, mailing())

    async def main(app):
        await app.decide("run", "mail", did_not=True, token="decision-1")
        await app.decide("run", "mail", did_not=True, token="decision-1")
        with pytest.raises(WrongStatus):
            await app.decide("run", "mail", did_not=True, token="decision-2")

    world.do(main)
    assert world.kinds().count("decision") == 1


def test_decision_needs_a_parked_run(world):
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


def test_unknown_effect_is_refused_with_a_list_of_effects(world):
    park(world, two())
    with pytest.raises(UnknownEffect) as refused:
        decide(world, "run", "male", did_not=True)
    assert sorted(refused.value.there) == ["mail#1", "mail#2"]
    assert "mail#1" in str(refused.value)
    assert (refused.value.id, refused.value.effect) == ("run", "male")


def test_settled_effect_cannot_be_decided(world):
    @workflow
    async def both() -> None:
        await pay("ok")
        await mail("rent")

    park(world, both())
    with pytest.raises(UnknownEffect) as refused:
        decide(world, "run", "pay", did_not=True)
    assert refused.value.there == ["mail#1"]


def test_parked_run_with_nothing_to_decide_says_so(world):
    @workflow(name="changed")
    async def first() -> str:
        await pay("ok")
        return await sleep(100) or "done"

    @workflow(name="changed")
    async def second() -> str:
        return "changed"

    world.die(first(), after=50)
    park(world, second())
    with pytest.raises(UnknownEffect, match="Effects that wait for one: none"):
        decide(world, "run", "pay", did_not=True)


def test_ambiguous_effect_name_is_refused(world):
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


def test_decided_effect_cannot_be_decided_again(world):
    park(world, mailing())
    decide(world, "run", "mail", happened="found")
    with pytest.raises(WrongStatus, match="queued"):
        decide(world, "run", "mail", did_not=True)
    assert world.run(mailing()) == "found"


def test_second_of_two_concurrent_decisions_is_refused(world):
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


def test_decision_on_an_unseen_act_is_refused(world):
    """Between the look and the word, the run was resumed and has acted again: the word is not about that act."""
    park(world, pushing())
    (seen,) = world.do(lambda app: app.effects("run"))

    async def main(app):
        writer = app._open.writer
        ask = writer.execute

        async def later(command):
            if type(command).__name__ == "Decide":
                del writer.execute
                assert await ask(Resume("run", "token")) is None
                with pytest.raises(RunParked):
                    await (await app.start(pushing(), id="run")).result(timeout=1e5)
            return await ask(command)

        writer.execute = later
        with pytest.raises(WrongStatus, match="has changed in the meantime"):
            await app.decide("run", "push", happened="found", intent=seen.intent)

    world.do(main)
    assert world.status() == "parked"
    assert "decision" not in world.kinds()


def test_repeated_effect_needs_a_decision_on_its_last_act(
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
    with pytest.raises(WrongStatus, match="Check its outcome"):
        decide(world, "run", "push", happened="found", intent=1)
    assert world.status() == "parked"
    decide(world, "run", "push", happened="found", intent=seen.intent)
    assert world.run(pushing()) == "found"


def test_acts_without_a_verify_between_them_are_decided_together(world):
    park(world, pushing())
    decide(world, "run", "push", happened="found")
    assert world.run(pushing()) == "found"


def test_decision_from_before_a_resume_is_refused(world):
    park(world, pushing())
    (seen,) = world.do(lambda app: app.effects("run"))
    world.do(lambda app: app.resume("run"))
    park(world, pushing())
    with pytest.raises(WrongStatus, match="Check its outcome"):
        decide(world, "run", "push#1", happened="found", intent=seen.intent)
    assert world.status() == "parked"


# -- other things that became of it meanwhile


def test_decision_takes_precedence_over_verify(world):
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


def test_decision_on_one_effect_lets_others_be_retried(world):
    """A decision clears the count as a resume does: a person has looked at the run."""
    bank.comes["rent"], bank.comes["heat"] = ["lost"], ["broken"]
    bank.answers["rent"] = ["raises"] * 5 + ["truth"]

    @workflow
    async def both() -> list[str]:
        return await asyncio.gather(pay("rent"), mail("heat"))

    park(world, both())
    decide(world, "run", "mail", happened="sent")
    assert world.run(both()) == ["receipt for rent", "sent"]


def test_clock_of_the_run_stands_still_while_it_is_parked(world):
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


def test_run_without_effects_shows_none(world):
    world.run(sleeping())
    assert world.do(lambda app: app.effects("run")) == []
    with pytest.raises(UnknownRun):
        world.do(lambda app: app.effects("nobody"))


def test_sync_api_decides_and_shows_effects(tmp_path):
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
