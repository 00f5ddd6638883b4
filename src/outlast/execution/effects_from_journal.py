"""Fold a run's journal into the state of its effects.

The fold is pure. Replay, compensation, retry, decide and show read it. An effect record describes
one call site: what was intended there, whether it happened, and whether it was compensated. See
docs/architecture-effects.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from outlast.codec.exceptions import CANCELLED, LEFT_OPEN
from outlast.store.commands import Record
from outlast.store.rows import Entry

UNDO = "undo:"
"""Prefix of a call site's key. With it, the key is the call site of the compensation."""
KINDS = frozenset({"intent", "compensation", "child", "verify", "decision", "undoing"})
"""Kinds of entries that always concern the effect log. Other kinds do if their key has an effect
record."""
ENDS_OF_LIVES = frozenset({"death", "interruption"})
AGAIN = frozenset({"resume", "retry"})
"""After these entries, and when compensation begins, unresolved and failed effects get a fresh
start: the counters that have a limit restart at zero."""


@dataclass
class Decision:
    """A person's decision on an open intent: "happened" or "did_not"."""

    what: str
    value: str | None


@dataclass
class EffectRecord:
    """The effect intended at one call site.

    `happened` is None as long as the outcome is unknown.
    """

    # 18 attributes: this is the row that show, decide, retry and compensation print and
    # compare. Each attribute is one fact that the entries of a call site record.

    place: str
    kind: str
    """`intent`, `compensation` (a compensation to execute, whatever it belongs to) or `child`."""
    first: int
    """The seq of the record's first entry. Compensation goes by this order, newest first."""
    effect: str = ""
    code: str = ""
    """The module, qualified name and name of the effect's function. A hint if two effects share
    a name."""
    args: str | None = None
    """The fingerprint of the call."""
    arguments: str = "{}"
    """The recorded arguments in full."""
    key: str = ""
    """The idempotency key."""
    generation: int = 0
    compensation: str | None = None
    units: tuple[str, ...] = ()
    """The names of the units around the call, outermost first. A unit that rolls back
    compensates the effect."""
    threaded: bool = False
    intent: int = 0
    """The seq of the last intent. `at` is its time."""
    at: float = 0.0
    timeout: float = 0.0
    acts: int = 0
    """The number of intents in this generation that the effect may have acted on."""
    had_fresh_start: bool = False
    """True once a retry, resume, decision or compensation gave the effect a fresh start."""
    tried_again: bool = False
    """True if an intent followed that fresh start. What was known of the effect before no longer
    applies."""
    ended: float = -math.inf
    """When the execution with the last intent ended by a death or an interruption."""
    closed: Entry | Record | None = None
    open: bool = False
    doubtful: bool = False
    """True if an act before the last one may have happened: nothing has ruled that out."""
    happened: bool | None = None
    unsure: bool = False
    """True if an idempotent effect was closed because it was no longer wanted, and may have
    happened all the same."""
    value: str | None = None
    raised: int = 0
    """The number of acts that raised since the last fresh start. Deaths do not count."""
    error: str | None = None
    """The error of the last of them."""
    retry_at: float = 0.0
    """When the next act may start."""
    asked: int = 0
    """How often verify could not tell since the last fresh start. `ask_at` is when to ask it
    again."""
    ask_at: float = 0.0
    doubt: str | None = None
    """Why verify could not tell."""
    decision: Decision | None = None
    undone: int | None = None
    """The seq of the entry that records the compensation."""
    by_hand: bool = False
    """True if a person has compensated the effect or decided that it needs no compensation."""

    @property
    def undoable(self) -> bool:
        """Return whether the effect happened, can be compensated and was not yet.

        An effect has a compensation, or the record is a registered compensation itself. The effects
        of children are in the children's own journals.
        """
        to_undo = self.kind == "compensation" or self.compensation is not None
        return bool(self.happened) and to_undo and self.undone is None

    @property
    def left_open(self) -> bool:
        """Return whether the run ended before it was known if the effect happened."""
        return self.closed is not None and self.closed.error == LEFT_OPEN

    def start_fresh(self) -> None:
        self.had_fresh_start = self.had_fresh_start or self.intent > 0
        self.raised = self.asked = 0
        self.retry_at = self.ask_at = 0.0
        self.error = None

    def reset(self) -> None:
        """Clear the record. The next call at this site is another effect with another key.

        The key stays the same if the effect may have happened under it.
        """
        self.generation += not self.unsure
        self.intent = 0
        self.open = False
        self.happened = None
        self.closed = None
        self.acts = 0
        self.doubtful = False
        self.unsure = False
        self.value = None
        self.decision = None
        self.undone = None
        self.by_hand = False
        self.start_fresh()


@dataclass
class EffectLog:
    """The effect records of one run, by call site."""

    records: dict[str, EffectRecord] = field(default_factory=dict)
    lean: bool = False
    """Drop arguments and results that no execution will need. Commands that only inspect a run
    keep them."""
    undoing: int | None = None
    """The seq of the entry that began the run's compensation."""
    at: float = 0.0
    """When the last entry was recorded."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Effects whose outcome only a person can decide, by key, with the reason. This execution
    found that out."""

    def get(self, place: str) -> EffectRecord | None:
        return self.records.get(place)

    def is_open(self, place: str) -> bool:
        """Return whether it is unknown if the effect at this call site happened."""
        effect_record = self.records.get(place)
        return effect_record is not None and effect_record.open

    def __iter__(self) -> Iterator[EffectRecord]:
        """Yield the run's own records, newest first.

        Compensations belong to the records they compensate.
        """
        own = (
            effect_record
            for effect_record in self.records.values()
            if not effect_record.place.startswith(UNDO)
        )
        return iter(sorted(own, key=lambda effect_record: -effect_record.first))

    @property
    def opened(self) -> list[EffectRecord]:
        """Return the records with an unknown outcome, newest first, including compensations."""
        return sorted(
            (one for one in self.records.values() if one.open), key=lambda one: -one.first
        )

    @property
    def undoable(self) -> list[EffectRecord]:
        return [effect_record for effect_record in self if effect_record.undoable]

    @property
    def compensations(self) -> int:
        """Return how many effects a compensation would cover now.

        Open effects count, since they may have happened.
        """
        return sum(one.undoable or (one.open and one.compensation is not None) for one in self)

    def add(self, entry: Entry | Record) -> None:
        """Add the journal's next entry to the fold."""
        self.at = entry.at
        if entry.kind in KINDS:
            _ADD[entry.kind](self, entry)
        elif entry.kind in AGAIN:
            self._start_fresh()
        elif entry.kind in ENDS_OF_LIVES:
            for one in self.records.values():
                if one.ended < one.at:
                    one.ended = entry.at
        elif self.records and entry.key in self.records:
            effect_record = self.records[entry.key]
            if entry.kind == "step":
                self._close(effect_record, entry)
            elif entry.kind == "attempt":
                effect_record.raised = entry.attempt or 0
                effect_record.error = entry.error
                effect_record.retry_at = float(entry.value or 0)
                if entry.args is not None:
                    # This act did not happen. An earlier one may have.
                    effect_record.open = effect_record.doubtful

    def _intent(self, entry: Entry | Record) -> None:
        recorded: dict[str, Any] = json.loads(entry.value or "{}")
        effect_record = self.records.get(entry.key)
        if effect_record is None:
            effect_record = self.records[entry.key] = EffectRecord(entry.key, "intent", entry.seq)
        if effect_record.intent == 0:
            effect_record.first = entry.seq
        if "again" not in recorded:
            # Count only new intents. One with `again` repeats an intent that was too slow to act
            # on.
            effect_record.doubtful = effect_record.open
            effect_record.acts += 1
        effect_record.kind = "intent"
        effect_record.intent = entry.seq
        effect_record.at = entry.at
        effect_record.args = entry.args
        effect_record.tried_again = effect_record.had_fresh_start
        effect_record.ended = -math.inf
        effect_record.open = True
        effect_record.happened = None
        effect_record.closed = None
        effect_record.decision = None
        effect_record.key = recorded["key"]
        effect_record.timeout = recorded["timeout"]
        effect_record.generation = recorded["generation"]
        effect_record.effect = recorded["effect"]
        effect_record.code = recorded["code"]
        effect_record.arguments = recorded["arguments"]
        effect_record.compensation = recorded["compensation"]
        effect_record.threaded = recorded["threaded"]
        effect_record.units = tuple(recorded.get("units", ()))

    def _compensation(self, entry: Entry | Record) -> None:
        recorded = json.loads(entry.value or "{}")
        self.records[entry.key] = EffectRecord(
            entry.key, "compensation", entry.seq, recorded["effect"], recorded["code"],
            entry.args, recorded["arguments"],
            units=tuple(recorded.get("units", ())), closed=entry, happened=True,
        )  # fmt: skip

    def _child(self, entry: Entry | Record) -> None:
        if entry.error is None:
            self.records[entry.key] = EffectRecord(
                entry.key, "child", entry.seq, closed=entry, happened=True
            )
            self._undid(entry)

    def _verify(self, entry: Entry | Record) -> None:
        effect_record = self.records[entry.key]
        if entry.args is not None:
            # Verify answered that the effect did not happen.
            effect_record.open = effect_record.doubtful = False
            return
        effect_record.asked = entry.attempt or 0
        effect_record.ask_at = float(entry.value or 0)
        effect_record.doubt = entry.error

    def _decision(self, entry: Entry | Record) -> None:
        recorded = json.loads(entry.value or "{}")
        effect_record = self.records.get(entry.key)
        self._start_fresh()
        if (effect_record is None or not effect_record.intent) and entry.key.startswith(UNDO):
            self._undid(entry)
            self.records[entry.key[len(UNDO) :]].by_hand = True
        elif effect_record is not None and effect_record.intent == recorded["intent"]:
            effect_record.decision = Decision(recorded["what"], recorded.get("value"))
            if recorded["what"] == "did_not":
                effect_record.open = effect_record.doubtful = False

    def _start_fresh(self) -> None:
        for effect_record in self.records.values():
            if not effect_record.happened:
                effect_record.start_fresh()

    def _undoing(self, entry: Entry | Record) -> None:
        self.undoing = entry.seq
        self._start_fresh()

    def _close(self, effect_record: EffectRecord, entry: Entry | Record) -> None:
        effect_record.unsure = effect_record.open and entry.error in (CANCELLED, LEFT_OPEN)
        needless = (
            effect_record.compensation is None
            and not effect_record.place.startswith(UNDO)
            and entry.error is None
        )
        if self.lean and needless:
            # Only the fact that the effect happened still matters. The workflow has the result.
            effect_record.arguments, entry = "{}", entry._replace(value="null")
        effect_record.closed = entry
        effect_record.open = False
        effect_record.value = entry.value
        effect_record.doubtful = False
        effect_record.happened = entry.value is not None
        if effect_record.happened:
            self._undid(entry)

    def _undid(self, entry: Entry | Record) -> None:
        """Mark the compensated record if this entry is a compensation."""
        if (
            entry.key.startswith(UNDO)
            and (what := self.records.get(entry.key[len(UNDO) :])) is not None
        ):
            what.undone = entry.seq

    # -- retrying

    def cut(self, start: int | None) -> int | None:
        """Return the seq from which a retry that starts at `start` must void the journal.

        It may be earlier than `start`, so that no compensated effect still counts as done. Return
        None if nothing is to be voided.
        """
        begin = min(start or math.inf, self.undoing or math.inf)
        while True:
            firsts = (
                one.first
                for one in self.records.values()
                if one.undone is not None and one.undone >= begin
            )
            earlier = min(firsts, default=begin)
            if earlier >= begin:
                return None if begin == math.inf else int(begin)
            begin = earlier

    def void(self, start: int) -> None:
        """Void the journal from `start` on.

        Effects that were compensated or did not happen become other effects when the run reaches
        their call sites again. Effects that happened or are open stay as they are.
        """
        self.undoing = None
        for place, effect_record in list(self.records.items()):
            ended = (
                effect_record.closed.seq
                if effect_record.closed is not None
                else effect_record.intent
            )
            if place.startswith(UNDO):
                if ended >= start:
                    effect_record.reset()
            elif effect_record.undone is not None and effect_record.undone >= start:
                if effect_record.kind == "intent":
                    effect_record.reset()
                else:
                    del self.records[place]
            elif ended >= start and not effect_record.happened and not effect_record.open:
                effect_record.reset()


_ADD = {
    "intent": EffectLog._intent,
    "compensation": EffectLog._compensation,
    "child": EffectLog._child,
    "verify": EffectLog._verify,
    "decision": EffectLog._decision,
    "undoing": EffectLog._undoing,
}
