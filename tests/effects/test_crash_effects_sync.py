"""Effects and units of sync workflows survive crashes, and the crash test itself finds faults."""

import pytest
from crash_effect_tools import check, everywhere, pays
from teller import bank, spay, unlock, work

from outlast import (
    KEY,
    effect,
    workflow,
)
from outlast import sync as s
from outlast.testing import Broke


@s.workflow
def sync_orders(*, fails: bool) -> list[str]:
    seen = [spay("before")]
    try:
        with s.unit("order"):
            spay("a")
            spay("b")
            raise LookupError
    except LookupError:
        seen.append(spay("c"))
    if fails:
        s.compensate_with(unlock, "c-too")
        bank.apply("+c-too", "", once=True)
        raise ValueError("sync")
    return seen


def test_sync_effects_and_units_survive_crashes():
    def look() -> None:
        assert bank.order == ["+before", "+a", "+b", "-b", "-a", "+c"], bank.log

    report = everywhere(sync_orders(fails=False), look)
    assert report.result == ["paid before", "paid c"]


def test_failing_sync_workflow_is_undone():
    done = ("before", "a", "b", "c", "c-too")
    report = everywhere(sync_orders(fails=True), check(*done, undone=True))
    assert report.error == "ValueError: sync"


@effect(timeout=10, idempotent=True)
async def twice(who: str, key: str = KEY) -> None:
    """It says that it is idempotent, and is not."""
    bank.apply(f"+{who}", key)


@workflow
async def trusting() -> None:
    await twice("a")


def test_crash_test_finds_an_effect_that_happens_twice():
    with pytest.raises(Broke, match=r"a crash (before|after) (write|act) \d+ .*: .*'\+a'"):
        everywhere(trusting(), check("a"), every=1)


def test_crash_in_the_act_alone_finds_a_repeated_effect():
    with pytest.raises(Broke, match=r"a crash after act 1 \(effect twice\)"):
        everywhere(trusting(), check("a"), writes=[])


def test_acts_can_be_chosen_like_writes():
    report = everywhere(pays(), check("a", "b", "c"), writes=[], acts=[2])
    assert (report.crashes, report.acts) == (2, 2)


def test_workflow_without_effects_has_no_acts_to_die_in():
    @workflow
    async def plain() -> str:
        return await work("x")

    assert everywhere(plain(), check()).acts == 0
