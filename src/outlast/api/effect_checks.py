"""Check the functions that `@fx.verify` and `@fx.compensate` decorate, at decoration time.

A mistake would otherwise show only after a death, when nothing else can tell what happened.
Annotations are compared only where both sides are plain classes. An annotation that cannot be
resolved yet is not compared.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from outlast.errors import SettingsError
from outlast.execution.effect_call import EFFECT_KEY, KEY, Happened

_NUMBERS = (bool, int, float, complex)


def key_name(fn: Callable[..., Any]) -> str | None:
    """Return the name of the parameter whose default is KEY."""
    parameters = inspect.signature(fn).parameters.values()
    return next((parameter.name for parameter in parameters if parameter.default is KEY), None)


def check_verify(effect: str, act: Callable[..., Any], fn: Any) -> None:
    """Raise TypeError unless the function can determine whether an effect happened."""
    what = f"verify of effect {effect}"
    _check_function(what, fn)
    parameters = inspect.signature(fn).parameters
    known = set(inspect.signature(act).parameters)
    wrong = sorted(set(parameters) - known - {key_name(fn)})
    if wrong:
        raise TypeError(
            f"{what} takes {', '.join(wrong)}, but the effect has no such parameter. It may take "
            "any of the effect's parameters by name."
        )
    _check_by_name(what, parameters.values())
    given, taken = _hints(act), _hints(fn)
    _check_types(what, given, taken, parameters)
    for answer in _members(taken.get("return", Any)):
        if answer in (Any, None, type(None), NoReturn, typing.Never) or isinstance(
            answer, typing.TypeVar
        ):
            continue
        if typing.get_origin(answer) is not Happened and answer is not Happened:
            raise TypeError(
                f"{what} returns {_name(answer)}. It must return Happened(result) or None."
            )
        for result in typing.get_args(answer):
            if _clash(given.get("return", Any), result):
                raise TypeError(
                    f"{what} returns {_name(answer)}, but the effect returns "
                    f"{_name(given['return'])}."
                )


def check_failed_on(name: str, failed_on: Any) -> tuple[type[BaseException], ...]:
    """Return the exception types as a tuple. Raise SettingsError for others, and for all errors."""
    failed = failed_on if isinstance(failed_on, tuple) else (failed_on,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in failed):
        raise SettingsError(f"failed_on of effect {name} takes exception types, not {failed_on!r}.")
    everything = next((one for one in failed if one in (Exception, BaseException)), None)
    if everything is not None:
        raise SettingsError(
            f"failed_on of effect {name} lists {everything.__name__}, which includes lost "
            "connections and errors raised after the act. List only exceptions that prove that "
            "nothing happened, such as the other system's rejections or ConnectionRefusedError."
        )
    return failed


def check_compensation(effect: str, act: Callable[..., Any], fn: Any) -> None:
    """Raise TypeError unless the function can compensate an effect.

    It must take the result first, then parameters of the effect.
    """
    what = f"the compensation of effect {effect}"
    _check_function(what, fn)
    parameters = inspect.signature(fn).parameters
    names = list(parameters)
    wrong = sorted(
        set(names[1:]) - set(inspect.signature(act).parameters) - {key_name(fn), EFFECT_KEY}
    )
    if not names or wrong:
        taken_now = ", ".join(wrong) if wrong else "no parameters"
        raise TypeError(
            f"{what} takes {taken_now}. It must take the effect's result first, then any of the "
            "effect's parameters by name."
        )
    first, *others = parameters.values()
    if first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD) or first.default is KEY:
        raise TypeError(
            f"{what} must take the effect's result as its first, positional parameter, not "
            f"{first.name}."
        )
    _check_by_name(what, others)
    given, taken = _hints(act), _hints(fn)
    _check_types(what, given, taken, names[1:])
    if _clash(given.get("return", Any), taken.get(first.name, Any)):
        raise TypeError(
            f"{what} takes the result as {_name(taken[first.name])}, but the effect returns "
            f"{_name(given['return'])}."
        )


def _check_function(what: str, fn: Any) -> None:
    if hasattr(fn, "signature") and hasattr(fn, "fn"):
        raise TypeError(f"{what} must be a plain function, not {fn!r}. Remove its other decorator.")
    if not callable(fn):
        raise TypeError(f"{what} must be a function, not {fn!r}.")
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise TypeError(f"{what} must return its result, but {fn.__name__} yields.")
    call = getattr(fn, "__call__", None)  # noqa: B004 - whether it is async
    if inspect.iscoroutinefunction(call) and not inspect.iscoroutinefunction(fn):
        raise TypeError(f"{what} must be a function, not a callable object: {fn!r}.")


def _check_by_name(what: str, parameters: Iterable[inspect.Parameter]) -> None:
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"{what} takes its arguments by name, but {parameter} cannot be passed by name."
            )


def _check_types(
    what: str, given: dict[str, Any], taken: dict[str, Any], names: Iterable[str]
) -> None:
    for name in names:
        ours, theirs = given.get(name, Any), taken.get(name, Any)
        if _clash(ours, theirs):
            raise TypeError(
                f"{what} takes {name} as {_name(theirs)}, but the effect takes it as {_name(ours)}."
            )


def _hints(fn: Any) -> dict[str, Any]:
    """Return the resolved annotations, or nothing if one of them cannot be resolved yet."""
    try:
        return typing.get_type_hints(fn)
    except Exception:
        # An annotation may raise anything. This check does not report it.
        return {}


def _members(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _clash(given: Any, taken: Any) -> bool:
    """Return whether the two types have no value in common. Only plain classes are compared."""
    ours, theirs = _members(given), _members(taken)
    if not all(_is_class(one) for one in (*ours, *theirs)):
        return False
    try:
        return not any(_related(one, other) for one in ours for other in theirs)
    except TypeError:
        # A protocol or a typed dict.
        return False


def _is_class(hint: Any) -> bool:
    return isinstance(hint, type) and hint is not Any and typing.get_origin(hint) is None


def _related(one: type, other: type) -> bool:
    return (
        (one in _NUMBERS and other in _NUMBERS) or issubclass(one, other) or issubclass(other, one)
    )


def _name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
