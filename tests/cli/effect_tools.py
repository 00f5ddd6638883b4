"""Workflows whose effects can fail, and the table of effects that `outlast show` prints."""

from __future__ import annotations

TRIPS = """
from __future__ import annotations

import os
from pathlib import Path

from outlast import KEY, compensate_with, effect, unit, workflow


def lost(what: str) -> bool:
    return what in Path("lost").read_text().split()


@effect(timeout=0.01)
async def book(what: str, *, key: str = KEY) -> str:
    if lost(what):
        raise ConnectionError(f"no answer about the {what}")
    return f"{what} booked"


@book.compensate(retries=1, backoff=0.001)
async def unbook(booking: str | None, what: str) -> None:
    if lost(f"un{what}"):
        raise RuntimeError(f"the {what} desk is closed")


@effect(timeout=0.01, undo=None)
async def close(what: str) -> None: ...


@effect(timeout=0.01, retries=1, backoff=0.001, failed_on=ValueError)
async def greet(name: str) -> str:
    raise ValueError("nobody home")


@workflow
async def trip(fail: bool = False) -> list[str]:
    await compensate_with(close, "the file")
    booked = [await book(what) for what in ("flight", "hotel")]
    if fail:
        raise ValueError("rain")
    return booked


@workflow
async def picnic() -> str:
    try:
        async with unit("basket"):
            await book("flight")
            raise ValueError("rain")
    except ValueError:
        return "home"


@workflow
async def welcome() -> str:
    try:
        return await greet("Ann")
    except ValueError:
        return "nobody"
"""


def table(answer) -> dict[str, list[str]]:
    """The lines of the effects, by their places."""
    lines = answer.out.splitlines()
    start = next(
        number for number, line in enumerate(lines) if line.split()[:2] == ["EFFECT", "STATE"]
    )
    cells = [line.split() for line in lines[start + 1 : lines.index("", start)]]
    return {line[0]: line[1:] for line in cells}
