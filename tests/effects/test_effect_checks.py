"""A verify or compensation with an unusable signature is refused when it is decorated."""

from typing import Any

import pytest

from outlast import KEY, Happened, effect, step


class Receipt: ...


@effect(timeout=10)
async def send(to: str, amount: int = 1, key: str = KEY) -> Receipt:
    return Receipt()


@step
async def a_step(key: str) -> None: ...


async def yields(key: str):
    yield key


async def by_position(key: str, /) -> None: ...


async def all_others(**key: str) -> None: ...


async def says_yes(key: str) -> bool: ...


def says_later(key: str) -> "NotDefinedYet": ...  # noqa: F821


async def says_text(key: str) -> Happened[str] | None: ...


async def takes_bytes(to: bytes) -> None: ...


class Called:
    async def __call__(self, key: str) -> None: ...


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (True, "verify of effect send must be a function, not True"),
        ("was_sent", "verify of effect send must be a function, not 'was_sent'"),
        (a_step, "verify of effect send must be a plain function, not <step a_step>"),
        (yields, "verify of effect send must return its result, but yields yields"),
        (Called(), "verify of effect send must be a function, not a callable object"),
        (
            by_position,
            "verify of effect send takes its arguments by name, but key: str cannot be passed by name",
        ),
        (all_others, "verify of effect send takes its arguments by name"),
        (
            says_yes,
            r"verify of effect send returns bool\. It must return Happened\(result\) or None",
        ),
        (
            says_text,
            r"verify of effect send returns .*Happened\[str\], but the effect returns Receipt",
        ),
        (takes_bytes, "verify of effect send takes to as bytes, but the effect takes it as str"),
    ],
)
def test_verify_with_a_wrong_signature_is_refused(fn, says):
    with pytest.raises(TypeError, match=says):
        send.verify(fn)
    assert send.verifier is None


def test_verify_without_annotations_is_accepted():
    for fn in (
        lambda: None,
        lambda to, key: Happened(Receipt()),
        says_later,
    ):
        assert effect(timeout=1, name="sent")(send.fn).verify(fn) is fn

    async def anything(to: Any, amount: float) -> Happened[Any]: ...

    def subclass(to: object) -> Happened[Receipt]: ...

    for fn in (anything, subclass):
        assert effect(timeout=1, name="sent")(send.fn).verify(fn) is fn


async def takes_the_result_by_name(*, receipt: Receipt) -> None: ...


async def takes_another_result(receipt: str) -> None: ...


async def takes_the_rest_by_position(receipt: Receipt, to: str, /) -> None: ...


async def takes_another_amount(receipt: Receipt, amount: str) -> None: ...


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (3, "the compensation of effect send must be a function, not 3"),
        (a_step, "the compensation of effect send must be a plain function, not <step a_step>"),
        (takes_the_result_by_name, "its first, positional parameter, not receipt"),
        (takes_another_result, "takes the result as str, but the effect returns Receipt"),
        (
            takes_the_rest_by_position,
            "takes its arguments by name, but to: str cannot be passed by name",
        ),
        (takes_another_amount, "takes amount as str, but the effect takes it as int"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"timeout": 3}])
def test_compensation_with_a_wrong_signature_is_refused(fn, says, options):
    with pytest.raises(TypeError, match=says):
        send.compensate(**options)(fn) if options else send.compensate(fn)
    assert send.compensation is None


def test_compensation_accepts_an_optional_result():
    async def unsend(receipt: Receipt | None, to: str, effect_key: str, key: str = KEY) -> None: ...

    made = effect(timeout=1, name="undone")(send.fn)
    assert made.compensate(unsend) is made.compensation
