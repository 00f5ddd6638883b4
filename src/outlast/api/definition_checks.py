"""Check what a decorator is given, at decoration time."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from outlast.codec.identifiers import check_name
from outlast.errors import SettingsError
from outlast.execution.effect_call import KEY

NAME_LENGTH_MAX = 200
_MEANT = {
    **dict.fromkeys(("retry", "max_retries", "attempts", "max_attempts", "tries"), "retries"),
    **dict.fromkeys(("delay", "retry_delay", "wait"), "backoff"),
}
"""Options of other libraries, with their names here."""


def default_name(fn: Callable[..., Any], given: str | None, what: str) -> str:
    """Return the given name, else the function's qualified name without its enclosing functions.

    Raise TypeError if `fn` is not callable.
    """
    if not callable(fn):
        raise TypeError(f"@{what} decorates a function, not {fn!r}. With options: @{what}(...).")
    name = given if given is not None else getattr(fn, "__qualname__", type(fn).__qualname__)
    return check_name(name.rpartition("<locals>.")[2], NAME_LENGTH_MAX, f"{what} name")


def check_options(what: str, name: str, **numbers: float | None) -> None:
    """Raise SettingsError for an option that is neither None nor a number of at least 0."""
    for option, value in numbers.items():
        if value is not None and not (isinstance(value, (int, float)) and 0 <= value < math.inf):
            raise SettingsError(
                f"{option} of {what} {name} must be a number of at least 0, not {value!r}."
            )


def check_function(fn: Any, kind: str) -> None:
    """Raise TypeError for a function that cannot be a step or an effect."""
    if hasattr(fn, "signature") and hasattr(fn, "fn"):
        raise TypeError(
            f"@{kind} decorates a plain function, and {fn!r} is decorated already: remove one of "
            "the two."
        )
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise TypeError(
            f"@{kind} decorates a function that returns its result, and {fn.__name__} yields: "
            "let it return a list."
        )
    keys = (
        [one.name for one in inspect.signature(fn).parameters.values() if one.default is KEY]
        if callable(fn)
        else []
    )
    if keys and kind != "effect":
        raise TypeError(
            f"{fn.__name__} is a {kind}, and only an effect has a key ({keys[0]} = KEY): "
            "@effect(timeout=...)."
        )
    if len(keys) > 1:
        raise TypeError(f"effect {fn.__name__} takes its key once, not as {' and '.join(keys)}.")


def checked_name(
    fn: Callable[..., Any], name: str | None, kind: str, options: Mapping[str, float | None]
) -> str:
    """Return the name of a step or an effect, after checking its function and its options."""
    check_function(fn, kind)
    name = default_name(fn, name, kind)
    check_options(kind, name, **options)
    return name


def check_known_options(kind: str, options: Iterable[str], known: Sequence[str]) -> None:
    """Raise TypeError for an unknown option, listing the known ones."""
    for option in options:
        if option not in known:
            # Imported here to keep start-up fast.
            from difflib import get_close_matches

            near = (
                [_MEANT[option]]
                if _MEANT.get(option) in known
                else get_close_matches(option, known, 1)
            )
            hint = f" Did you mean {near[0]}?" if near else ""
            raise TypeError(f"@{kind} has no option {option!r}.{hint} It has {', '.join(known)}.")
