"""Let the runs of each key take turns, within the limits of their queue, on an open transaction.

The runs of a queue, key and workflow that are due form a lane. Those that have started before, the
suspects and the new ones are lanes of their own (`RunRow.ready`). Only the first run of a lane, its
head, is in the index of ready runs, and only while the limits of the key allow it to be claimed.

A submission notes its key in the table `key_changes`, and a trigger (`KEY_RULE`) the keys that
something happened to. The next claim reviews them. What executes and what has started is counted
from the rows of the runs, so there is no counter that could be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlast.store.rows import NEW_HELD_BACK, TURN_STEP
from outlast.store.sqlite import statements as sql

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


class KeyTurns:
    """Give and take turns during one claim."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._now = transaction.now
        self.lost: set[int] = set()
        """The runs that lost their turns during this claim."""
        self.first_given: tuple[Any, ...] | None = None
        """The place of the first run that got a turn since this was last set to None."""

    def review_changed(self, queue: str) -> None:
        """Review the keys that have changed since the last claim."""
        changed = self._db.execute(sql.KEY_CHANGES, (queue, self._now)).fetchall()
        self._db.executemany(sql.KEY_REVIEWED, changed)
        for _, key in changed:
            self.review(queue, key)

    def may_start(self, queue: str, key: str, pk: int, *, new: bool) -> bool:
        """Return whether the limits of the key allow a due run to execute. Else take its turn."""
        if pk in self.lost:
            return False
        may_start = self._has_slot(queue, key) and (not new or self._next_start(queue, key) is None)
        if not may_start:
            self.lost.add(pk)
            self.review(queue, key)
        return may_start

    def review(self, queue: str, key: str, after: float | None = None) -> None:
        """Give turns to the first runs of the key, and take them from all others.

        `after` is the turn of a run that was just claimed: the next one goes behind all others that
        have their turns by now.
        """
        lanes = {(row[0], row[1]): list(row[2:]) for row in self._first_of_lanes(queue, key)}
        heads = {
            (row[0], row[1]): list(row[2:])
            for row in self._db.execute(sql.KEY_HEADS, (queue, key)).fetchall()
        }
        slot = self._has_slot(queue, key) if lanes or heads else False
        has_new = any(lane == NEW_HELD_BACK for _, lane in [*lanes, *heads])
        next_start = self._next_start(queue, key) if slot and has_new else None
        if next_start is not None:
            self._db.execute(sql.KEY_REVIEW_AT, (queue, key, next_start))
        turn = self._now if after is None else max(self._now, after) + TURN_STEP
        for lane in {**lanes, **heads}:
            is_open = slot and (next_start is None or lane[1] != NEW_HELD_BACK)
            first, head = lanes.get(lane), heads.get(lane)
            if head is not None and (not is_open or (first is not None and first < head)):
                self._db.execute(sql.TAKE_TURN, (head[-1],))
                self.lost.add(head[-1])
                head = None
            if is_open and head is None and first is not None:
                self._db.execute(sql.GIVE_TURN, (turn, first[-1]))
                self.lost.discard(first[-1])
                place = (*first[:2], turn, first[3])
                self.first_given = min(self.first_given or place, place)

    def _first_of_lanes(self, queue: str, key: str) -> list[Any]:
        found: list[Any] = []
        workflow, lane = "", NEW_HELD_BACK - 1
        while row := self._db.execute(sql.KEY_NEXT, (queue, key, workflow, lane)).fetchone():
            found.append(row)
            workflow, lane = row[:2]
        return found

    def _has_slot(self, queue: str, key: str) -> bool:
        most = self._transaction.queue_counts(queue).key_concurrency_max
        if most is None:
            return True
        (running,) = self._db.execute(sql.KEY_RUNNING, (queue, key)).fetchone()
        return bool(running < most)

    def _next_start(self, queue: str, key: str) -> float | None:
        """Return when the rate allows the next start, or None if it does now."""
        counts = self._transaction.queue_counts(queue)
        if counts.key_starts_max is None or counts.key_period is None:
            return None
        row = self._db.execute(sql.KEY_START, (queue, key, counts.key_starts_max - 1)).fetchone()
        next_start = row[0] + counts.key_period if row else self._now
        return next_start if next_start > self._now else None
