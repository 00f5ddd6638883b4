"""Choose some of the points at which `crash_everywhere` kills a story."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from outlast.testing import CrashReport, crash_everywhere

Choice = Callable[[int], Iterable[int]]
"""Takes how many writes or acts the undisturbed story has. Returns the numbers of those to crash at."""


def crash_at_some(
    call: Any, *, every: int = 2, first: int = 1, every_act: int = 1, **options: Any
) -> CrashReport[Any]:
    """Crash at every so-many-th write and act, and no further than the undisturbed story goes.

    A crash before write 3 leaves the same store as one after write 2. With `every=2` a story without
    effects therefore still dies in every state that its store can be in.
    """
    return crash_at(
        call,
        writes=lambda last: range(first, last + 1, every),
        acts=lambda last: range(1, last + 1, every_act),
        **options,
    )


def crash_at(
    call: Any,
    *,
    writes: Choice | Sequence[int],
    acts: Choice | Sequence[int],
    outside: Any = None,
    **options: Any,
) -> CrashReport[Any]:
    """Crash at the writes and acts that two functions choose once their numbers are known."""
    apps: list[Any] = []

    async def observe(app: Any) -> None:
        if not apps:
            apps.append(app)
        if outside is not None:
            await outside(app)

    def points(choice: Choice | Sequence[int], count: Callable[[Any], int]) -> Iterator[int]:
        """Yield the points. The undisturbed story is over when the first one is asked for."""
        yield from choice(count(apps[0])) if callable(choice) else choice

    return crash_everywhere(
        call,
        outside=observe,
        writes=points(writes, lambda app: app.store.writes),  # type: ignore[arg-type] # only iterated
        acts=points(acts, lambda app: app._stubs.count),  # type: ignore[arg-type]
        **options,
    )
