"""Read for many followers at once.

A process may follow hundreds of streams, and a read of each would take longer than a tick. So what
follows in all streams of runs that have not ended is one read. All else is read for each follower
alone: the first read, the end of a run, and whatever a shared read cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from outlast.engine.watching.follower import Follower
from outlast.engine.watching.stream_follower import StreamFollower
from outlast.errors import StoreBroken
from outlast.store.protocol import Store

AnyFollower: TypeAlias = Follower[Any, Any]


def read_all(store: Store, followers: Sequence[AnyFollower]) -> list[Any]:
    """Read for each follower, and return a reading, None or an error for each.

    What is damaged fails only its own follower.
    """
    streams = [one for one in followers if isinstance(one, StreamFollower) and one.only_follows]
    shared = _read_together(store, streams)
    return [shared.get(one.origin) or _read_alone(store, one) for one in followers]


def _read_together(store: Store, followers: Sequence[StreamFollower]) -> dict[str, Any]:
    """Return what follows in several streams, by origin. Leave out what must be read alone."""
    try:
        checked = [one.known.run for one in followers if one.checks_run]
        unended = store.unended(checked) if checked else set()
        asked = [one for one in followers if not one.checks_run or one.known.run in unended]
        streams = store.many_streams([one.following for one in asked]) if asked else []
        readings = {
            one.origin: one.continued(stream, store.place)
            for one, stream in zip(asked, streams, strict=True)
        }
    except StoreBroken:
        # One of them is damaged. Reading each alone tells which.
        return {}
    return {origin: reading for origin, reading in readings.items() if reading is not None}


def _read_alone(store: Store, follower: AnyFollower) -> Any:
    try:
        return follower.read(store)
    except StoreBroken as error:
        return error
