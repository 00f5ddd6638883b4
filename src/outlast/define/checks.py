"""What a decorator checks, when it decorates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from outlast.errors import SettingsError
from outlast.values.names import check_name

NAME_LENGTH_MAX = 200


def default_name(fn: Callable[..., Any], given: str | None, what: str) -> str:
    """The given name, else the function's qualified name without the functions around it."""
    if not callable(fn):
        raise TypeError(f"@{what} decorates a function, not {fn!r}. With options: @{what}(...).")
    name = given if given is not None else getattr(fn, "__qualname__", type(fn).__qualname__)
    return check_name(name.rpartition("<locals>.")[2], NAME_LENGTH_MAX, f"{what} name")


def check_options(what: str, name: str, **numbers: float | None) -> dict[str, Any]:
    for option, value in numbers.items():
        if value is not None and not (isinstance(value, (int, float)) and 0 <= value < math.inf):
            raise SettingsError(f"{option} of {what} {name} must be a number of at least 0, not {value!r}.")
    return numbers
