"""Map rows to the files that they live in.

Files are named by numbers that the store gave. No text that a user chose is ever part of a path.

runs/000/000012.jsonl       a run that has recorded something, with all its rows
runs/000.jsonl              runs that have not, and plain items: a thousand numbers per file
sessions/000/000003.jsonl   a session
store.jsonl                 everything else: workers, queues, drains, durations, counters
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

STORE = "store.jsonl"

OWNERS = {
    "runs": ("runs", "pk"),
    "entries": ("runs", "run"),
    "executions": ("runs", "run"),
    "messages": ("runs", "run"),
    "progress": ("runs", "run"),
    "streams": ("runs", "run"),
    "stream_parts": ("runs", "run"),
    "stream_chunks": ("runs", "run"),
    "sessions": ("sessions", "pk"),
    "session_fields": ("sessions", "session"),
    "session_items": ("sessions", "session"),
}
"""For each table whose rows belong to a run or a session: the owner's table, and the column with
the owner's number.
"""

_NAMES = re.compile(
    r"store\.jsonl|runs/\d{3,}\.jsonl|(runs|sessions)/\d{3,}/\d{6,}\.jsonl", re.ASCII
)

Owner = tuple[str, int]
"""A run or a session, as its table and its number."""


def owner_of(table: str, row: Mapping[str, Any]) -> Owner | None:
    found = OWNERS.get(table)
    return None if found is None else (found[0], row[found[1]])


def own_file(owner: Owner) -> str:
    table, number = owner
    return f"{table}/{number // 1000:03}/{number:06}.jsonl"


def shared_file(owner: Owner) -> str:
    table, number = owner
    return f"{table}/{number // 1000:03}.jsonl"


def may_live_in(file: str, owner: Owner | None) -> bool:
    return file == STORE if owner is None else file in (own_file(owner), shared_file(owner))


def may_live(file: str) -> Iterator[Owner]:
    """Yield every owner that may live in a file, whether it exists or not."""
    table, *rest = file.removesuffix(".jsonl").split("/")
    if len(rest) == 1:
        yield from (
            (table, number) for number in range(int(rest[0]) * 1000, int(rest[0]) * 1000 + 1000)
        )
    elif rest:
        yield (table, int(rest[1]))


def is_a_journal(file: str) -> bool:
    return _NAMES.fullmatch(file) is not None
