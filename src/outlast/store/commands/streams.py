"""Define the command that publishes values to the streams of a run."""

from __future__ import annotations

from typing import NamedTuple

from outlast.store.commands.held_runs import Record

FOLD_MAX = 64_000
"""The most characters that joining puts into one row. One publication may be longer."""


class Publish(NamedTuple):
    """Append values to a writer's part of a stream. Fenced. Result: None.

    A stream belongs to a run and is a list of JSON values. Each value has a position, which only
    grows. What one writer has published (a step, or one call in workflow code) is its part. The
    store knows the fence, the attempt and the length of each part, and decides by these rules:

    1. Without `record`, the command is refused with FENCE unless the run has this fence. With
       `record`, the store also writes that Record in the same transaction, and refuses with FENCE
       where it would refuse the Record. A repeat of the record (same run, seq and fence) changes
       nothing and is accepted.
    2. If the writer has no part, `after` must be 0.
    3. If the part is of this fence and attempt, the values are appended if `after` is its length.
       If the part already has that many values after `after`, this is a repeat, which changes
       nothing.
    4. If the part is of a later attempt under the same fence, nothing changes.
    5. If the part is of an earlier fence or attempt, then with `resumes`, `after` must be its
       length, and the part is continued. Otherwise `after` must be 0, and the part is replaced.
       In both cases it is of this fence and attempt from now on.
    6. With `last`, the rows of the part that follow one another are joined. No position changes.

    Whatever breaks a rule on `after` is refused with OFFSET and the length of the part. Nothing is
    then written, and neither is the record.

    Replacing a part that has values begins a new generation of the stream. Its `start` is greater
    than every position used so far, and the other parts get new positions from there in their old
    order. So a reader that has seen anything that no longer holds has a position below `start`.

    Publishing is not progress of the run: a step that publishes and then kills its worker, again
    and again, becomes a dead letter. Only pruning the run deletes its streams.
    """

    run: int
    fence: int
    stream: str
    writer: str
    attempt: int
    """Grows with every attempt of the writer under one fence."""
    after: int
    """How many values of the part this attempt knows to be durable."""
    values: tuple[str, ...] = ()
    """JSON each. Without any, the command still creates, takes over or replaces a part."""
    resumes: bool = False
    last: bool = False
    record: Record | None = None


def chunk_of(values: tuple[str, ...]) -> str:
    """Return the JSON array of values that are JSON each."""
    return f"[{','.join(values)}]"
