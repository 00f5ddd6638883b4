"""Expand variables as compose and Docker write them: $NAME, ${NAME}, ${NAME:-default}."""

from __future__ import annotations

import re
from collections.abc import Mapping

from outlast.tools.doctor.workload import ELSEWHERE

_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<bare>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?:(?P<mark>:?[-+?])(?P<rest>[^{}]*))?\})"
)


def filled(text: str, known: Mapping[str, str] = {}) -> str:
    """Fill in known values and defaults. ELSEWHERE stands for a value only the environment has."""

    def value(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        name = found["bare"] or found["name"]
        mark = found["mark"] or ""
        if name in known:
            return known[name]
        return found["rest"] if mark.endswith("-") else ELSEWHERE

    return _VARIABLE.sub(value, text)


def value_of(text: str, known: Mapping[str, str] = {}) -> str:
    """Fill in a whole value. Return ELSEWHERE if any part of it is unknown."""
    found = filled(text, known)
    return ELSEWHERE if ELSEWHERE in found else found
