"""Choose some of the points at which `crash_everywhere` kills a story."""

from collections.abc import Iterator, Sequence
from typing import Any

from outlast.testing import CrashReport, crash_everywhere

EARLY = 8
"""A story may die before its app has started, which is not observed. It has more writes than this."""


def crash_at_some(
    call: Any, *, every: int, first: int = 1, every_act: int = 1, outside: Any = None, **options: Any
) -> CrashReport[Any]:
    """Crash at every so-many-th write and act, up to the last one there is."""
    plugs: list[Any] = []

    async def observe(app: Any) -> None:
        plugs.append(app.store)
        if outside is not None:
            await outside(app)

    def points(start: int, step: int, least: int) -> Iterator[int]:
        number = start
        while True:
            plugs.clear()
            yield number
            if number > least and not any(plug.pulled for plug in plugs):
                return
            number += step

    chosen: dict[str, Sequence[int]] = {
        "writes": points(first, every, EARLY),  # type: ignore[dict-item] # it is only iterated
        "acts": points(1, every_act, 0),  # type: ignore[dict-item]
    }
    return crash_everywhere(call, outside=observe, **{**chosen, **options})
