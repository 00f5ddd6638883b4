"""Mistakes in the definition of an effect are reported when it is defined or called."""

import asyncio

import pytest

from outlast import (
    KEY,
    Effect,
    Happened,
    NotInRun,
    SettingsError,
    Step,
    SyncEffect,
    SyncStep,
    compensate_with,
    effect,
)
from outlast.api.effect import know_source
from outlast.execution.effect_call import find


@pytest.mark.parametrize("options", [{}, {"timeout": None}, {"retries": 3}])
def test_effect_needs_a_timeout(options):
    async def pay() -> None: ...

    with pytest.raises(SettingsError, match="needs a timeout"):
        effect(**options)(pay)


def test_bare_effect_decorator_says_that_a_timeout_is_needed():
    async def pay() -> None: ...

    with pytest.raises(SettingsError, match=r"effect pay needs a timeout: @effect\(timeout=30\)"):
        effect(pay)


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_timeout_is_a_number_of_seconds(timeout):
    async def pay() -> None: ...

    with pytest.raises(SettingsError, match="timeout"):
        effect(timeout=timeout)(pay)


def test_method_cannot_be_an_effect():
    class Account:
        async def pay(self) -> None: ...

    with pytest.raises(TypeError, match=r"Account\.pay is a method.*Make it a function"):
        effect(timeout=10)(Account.pay)


@pytest.mark.parametrize("undo", ["refund", print, False])
def test_undo_accepts_only_none(undo):
    async def pay() -> None: ...

    with pytest.raises(
        SettingsError, match=r"accepts only None\. To give effect pay a.*@pay\.compensate"
    ):
        effect(timeout=10, undo=undo)(pay)


@pytest.mark.parametrize("failed_on", ["OSError", OSError("x"), (OSError, 3), int, None])
def test_failed_on_takes_exception_types(failed_on):
    async def pay() -> None: ...

    with pytest.raises(SettingsError, match="failed_on of effect pay takes exception types"):
        effect(timeout=10, failed_on=failed_on)(pay)


@pytest.mark.parametrize("failed_on", [Exception, BaseException, (OSError, Exception)])
def test_failed_on_refuses_catch_all_types(failed_on):
    async def pay() -> None: ...

    with pytest.raises(
        SettingsError,
        match=r"failed_on of effect pay lists (Base)?Exception, .*ConnectionRefusedError",
    ):
        effect(timeout=10, failed_on=failed_on)(pay)
    paid = effect(timeout=10, name="paid")(pay)
    with pytest.raises(SettingsError, match="failed_on of effect"):
        paid.compensate(failed_on=failed_on)(lambda _: None)


@pytest.mark.parametrize("options", [{"retries": -1}, {"backoff": -1}, {"backoff_max": "x"}])
def test_negative_numbers_are_refused(options):
    async def pay() -> None: ...

    with pytest.raises(SettingsError, match=next(iter(options))):
        effect(timeout=10, **options)(pay)


def test_unknown_option_is_refused():
    async def pay() -> None: ...

    with pytest.raises(TypeError, match="retry_on"):
        effect(timeout=10, retry_on=OSError)(pay)


def test_only_a_function_can_be_an_effect():
    with pytest.raises(TypeError):
        effect(timeout=10)(3)


def test_effects_are_sync_or_async_like_steps():
    @effect(timeout=10)
    async def one() -> None: ...

    @effect(timeout=10)
    def other() -> None: ...

    assert isinstance(one, Effect)
    assert isinstance(one, Step)
    assert isinstance(other, SyncEffect)
    assert isinstance(other, SyncStep)
    assert (repr(one), one.name, other.name) == ("<effect one>", "one", "other")


def test_plain_function_of_an_effect_can_be_called_anywhere():
    @effect(timeout=10)
    def double(number: int) -> int:
        return 2 * number

    assert double.fn(3) == 6


# -- verify and compensate


@effect(timeout=10)
async def send(to: str, amount: int = 1, key: str = KEY) -> str:
    return to


def test_verify_takes_only_parameters_of_the_effect():
    async def verify(to: str, currency: str, when: float) -> Happened[str] | None: ...

    with pytest.raises(TypeError, match="verify of effect send takes currency, when"):
        send.verify(verify)


def test_verify_may_take_nothing_or_rename_the_key():
    async def nothing() -> Happened[str] | None: ...

    async def other_name(token: str = KEY) -> Happened[str] | None: ...

    assert send.verify(nothing) is nothing
    assert send.verify(other_name) is other_name


def test_compensation_takes_the_result_and_parameters_of_the_effect():
    async def refund(receipt: str, to: str, currency: str) -> None: ...

    with pytest.raises(TypeError, match="compensation of effect send takes currency"):
        send.compensate(refund)


def test_compensation_takes_at_least_the_result():
    async def refund() -> None: ...

    with pytest.raises(TypeError, match="compensation of effect send takes no parameters"):
        send.compensate(refund)


def test_compensation_defaults_to_idempotent_with_retries():
    @send.compensate
    async def refund(receipt: str, amount: int, effect_key: str, key: str = KEY) -> None: ...

    assert isinstance(refund, Effect)
    assert (refund.timeout, refund.retries, refund.idempotent) == (10, 5, True)
    assert send.compensation is refund


def test_compensation_may_have_options_of_its_own():
    @send.compensate(timeout=60, retries=1, idempotent=False, name="give back")
    def refund(receipt: str) -> None: ...

    assert isinstance(refund, SyncEffect)
    assert (refund.timeout, refund.retries, refund.idempotent, refund.name) == (
        60,
        1,
        False,
        "give back",
    )


def test_repr_of_the_key_explains_it():
    assert repr(KEY) == "KEY"
    assert isinstance(KEY, str)


# -- called where there is no run


def test_effect_outside_a_run_is_refused_with_a_hint():
    with pytest.raises(NotInRun, match=r"outside a run.*send\.fn\(\.\.\., key="):
        send("ann")


def test_effect_in_a_coroutine_outside_a_run_is_refused():
    async def main() -> None:
        await send("ann")

    with pytest.raises(NotInRun, match="outside a run"):
        asyncio.run(main())


def test_sync_effect_outside_a_run_is_refused():
    @effect(timeout=10)
    def pay() -> None: ...

    with pytest.raises(NotInRun, match="outside a run"):
        pay()
    with pytest.raises(NotInRun, match="outside a run"):
        pay.aio()


def test_compensate_with_is_for_a_workflow_and_takes_an_effect():
    with pytest.raises(NotInRun):
        compensate_with(send, "ann")
    with pytest.raises(TypeError, match=r"decorate it with @effect\(timeout=\.\.\.\)"):
        compensate_with(print, "ann")


def test_effect_that_a_source_defines_late_is_found():
    class Tools:
        def define_effects(self) -> None:
            effect(timeout=5, name="late.pay")(pay_late)

    async def pay_late() -> None: ...

    assert find("late.pay") is None
    tools = Tools()
    know_source(tools)
    found = find("late.pay")
    assert found is not None
    assert found.fn is pay_late
