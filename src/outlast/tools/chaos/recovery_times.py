"""Time how long a run waited between the end of one execution and the work of the next."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, NamedTuple

from outlast.execution.effects_from_journal import ENDS_OF_LIVES, EffectLog
from outlast.store.rows import Entry

BY_A_PERSON = frozenset({"retry", "resume", "decision"})
"""Entries of a request that a parked or ended run waited for."""
VOIDING = ENDS_OF_LIVES | BY_A_PERSON | {"failure", "undoing"}
"""Entries that the store writes by itself. The entry's fence is void from then on."""
TIMED = frozenset({"step", "attempt", "inner", "intent", "session"})
"""Kinds that tell when an execution began to work, if its first entry is one of them."""


class ExecutionEnd(NamedTuple):
    """The end of a run execution that ended before its run."""

    kind: str
    """`death` or `interruption`."""
    seq: int
    at: float
    seen: float | None
    """The last sign of life, if another worker had to notice the end."""
    fence: int
    """Fence of the execution that ended. 0 if it is not on record."""
    why: str


class Recovery(NamedTuple):
    """The time from the end of one execution to the work of the next."""

    end: ExecutionEnd
    seconds: float


class RecoveryTimes:
    """Collect the ends of executions in one journal, and the times to the next ones."""

    def __init__(self) -> None:
        self.ends: list[ExecutionEnd] = []
        self.recoveries: list[Recovery] = []
        self.untimed = 0
        """Ends after which no entry tells when the next execution began to work."""
        self._waiting: ExecutionEnd | None = None
        self._delayed: set[str] = set()
        """Call sites whose next attempt is delayed."""

    def add(self, entry: Entry, effects: EffectLog) -> None:
        """Take the next entry. `effects` is the log before this entry."""
        if entry.kind in ENDS_OF_LIVES:
            if self._waiting is not None:
                self.untimed += 1
            self._waiting = _end(entry)
            self.ends.append(self._waiting)
            return
        if entry.kind == "attempt":
            self._delayed.add(entry.key)
        if self._waiting is None or entry.kind in VOIDING - BY_A_PERSON:
            return
        end = self._waiting
        self._waiting = None
        effect = effects.get(entry.key)
        waits = (effect is not None and effect.open) or (
            entry.key in self._delayed and entry.kind != "intent"
        )
        # The run may have waited for a timer, a message, a person, or an effect still in flight.
        if entry.kind not in TIMED or waits:
            self.untimed += 1
            return
        began = entry.at - (entry.seconds or 0.0)
        self.recoveries.append(Recovery(end, max(0.0, began - (end.seen or end.at))))


def _end(entry: Entry) -> ExecutionEnd:
    facts: Any = {}
    # The rest of the entry says enough.
    with suppress(ValueError, RecursionError):
        facts = json.loads(entry.value or "{}")
    if not isinstance(facts, dict):
        facts = {}
    seen = facts.get("seen")
    return ExecutionEnd(
        entry.kind,
        entry.seq,
        entry.at,
        float(seen) if isinstance(seen, (int, float)) else None,
        abs(entry.fence),
        str(facts.get("why", "")),
    )
