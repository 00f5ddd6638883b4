"""Dealings: what a run has to do with the outside world, as its journal tells it.

Pure: a fold over entries, read by replay, undo, retry, decide and show. A dealing is an effect's place: what was intended there, whether it
happened, and whether it was undone. See docs/architecture.md, Effects.
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
"""Before the key of a place: the place of its compensation."""
KINDS = frozenset({"intent", "compensation", "child", "verify", "decision", "undoing"})
"""Entries that are always of interest here. Others are where there is a dealing at their key."""
ENDS_OF_LIVES = frozenset({"death", "interruption"})
ANEW = frozenset({"resume", "retry"})
"""After these, and when it begins to be undone, what could not be told or done is tried anew: what counts up to a limit starts from nothing."""


@dataclass
class Decision:
    """What a person has said of an open intent: "happened" or "did_not"."""

    what: str
    value: str | None


@dataclass
class EffectRecord:
    """What was intended at one place. `happened` is None as long as nobody knows."""

    place: str
    kind: str
    """`intent`, `compensation` (to be undone, whatever it belongs to) or `child`."""
    first: int
    """The seq of its first entry: the order in which things are undone."""
    effect: str = ""
    code: str = ""
    """Whose effect it is: module, qualified name and name of the function. A hint where two effects have one name."""
    args: str | None = None
    """The fingerprint of its call."""
    arguments: str = "{}"
    """Its recorded arguments, whole."""
    key: str = ""
    """Its idempotency key."""
    generation: int = 0
    compensation: str | None = None
    units: tuple[str, ...] = ()
    """The names of the units that it was called in, outermost first: they undo it if they are rolled back."""
    threaded: bool = False
    intent: int = 0
    """The seq of the last intent, and `at` its time."""
    at: float = 0.0
    timeout: float = 0.0
    acts: int = 0
    """How many intents there were, of this generation."""
    looked_at: bool = False
    """Somebody has had it tried anew."""
    tried_anew: bool = False
    """And it was: what was seen of it before that says nothing of it now."""
    ended: float = -math.inf
    """When the life ended that had the last intent, by a death or an interruption."""
    closed: Entry | Record | None = None
    open: bool = False
    doubtful: bool = False
    """An act before the last one may have happened: it was never known not to have."""
    happened: bool | None = None
    unsure: bool = False
    """It was closed because nobody wanted it any more, and may have happened all the same: it is idempotent."""
    value: str | None = None
    raised: int = 0
    """Acts that raised since it was last tried anew; deaths are not counted."""
    error: str | None = None
    """What the last of them raised."""
    retry_at: float = 0.0
    """When the next may be made."""
    asked: int = 0
    """How often verify could not tell since then, and `ask_at`: when to ask again."""
    ask_at: float = 0.0
    doubt: str | None = None
    """Why it could not."""
    decision: Decision | None = None
    undone: int | None = None
    """The seq of the entry that says so."""
    by_hand: bool = False
    """A person has undone it, or says that it need not be."""

    @property
    def undoable(self) -> bool:
        """It happened, has a compensation (or is one to be made), and was not undone. What children have done is in their own journals."""
        to_undo = self.kind == "compensation" or self.compensation is not None
        return bool(self.happened) and to_undo and self.undone is None

    @property
    def left_open(self) -> bool:
        """Whether its run ended before anybody found out whether it happened."""
        return self.closed is not None and self.closed.error == LEFT_OPEN

    def try_anew(self) -> None:
        self.looked_at = self.looked_at or self.intent > 0
        self.raised = self.asked = 0
        self.retry_at = self.ask_at = 0.0
        self.error = None

    def reset(self) -> None:
        """What happens here next is another effect, with another key; but not if it may have happened under this one."""
        self.generation += not self.unsure
        self.intent, self.open, self.happened, self.closed = 0, False, None, None
        self.acts, self.doubtful, self.unsure = 0, False, False
        self.value, self.decision, self.undone, self.by_hand = None, None, None, False
        self.try_anew()


@dataclass
class EffectLog:
    """Everything a run has dealt in, by place."""

    records: dict[str, EffectRecord] = field(default_factory=dict)
    lean: bool = False
    """Forget arguments and results that nobody will need. Those who only look want to see them."""
    undoing: int | None = None
    """The seq of the entry from which on the run is being undone."""
    at: float = 0.0
    """When the last entry was recorded."""

    def get(self, place: str) -> EffectRecord | None:
        return self.records.get(place)

    def __iter__(self) -> Iterator[EffectRecord]:
        """The run's own, newest first. Compensations are part of what they undo."""
        own = (
            effect_record
            for effect_record in self.records.values()
            if not effect_record.place.startswith(UNDO)
        )
        return iter(sorted(own, key=lambda effect_record: -effect_record.first))

    @property
    def opened(self) -> list[EffectRecord]:
        """Those of which nobody knows whether they happened, newest first; compensations too."""
        return sorted(
            (one for one in self.records.values() if one.open), key=lambda one: -one.first
        )

    @property
    def undoable(self) -> list[EffectRecord]:
        return [effect_record for effect_record in self if effect_record.undoable]

    @property
    def compensations(self) -> int:
        """How much there would be to undo now: what is open may have happened."""
        return sum(one.undoable or (one.open and one.compensation is not None) for one in self)

    def add(self, entry: Entry | Record) -> None:
        """The next entry of the journal."""
        self.at = entry.at
        if entry.kind in KINDS:
            _ADD[entry.kind](self, entry)
        elif entry.kind in ANEW:
            self._try_anew()
        elif entry.kind in ENDS_OF_LIVES:
            for one in self.records.values():
                if one.ended < one.at:
                    one.ended = entry.at
        elif self.records and entry.key in self.records:
            effect_record = self.records[entry.key]
            if entry.kind == "step":
                self._close(effect_record, entry)
            elif entry.kind == "attempt":
                effect_record.raised, effect_record.error = entry.attempt or 0, entry.error
                effect_record.retry_at = float(entry.value or 0)
                if entry.args is not None:  # this one did not happen; there may have been others
                    effect_record.open = effect_record.doubtful

    def _intent(self, entry: Entry | Record) -> None:
        said: dict[str, Any] = json.loads(entry.value or "{}")
        effect_record = self.records.get(entry.key)
        if effect_record is None:
            effect_record = self.records[entry.key] = EffectRecord(entry.key, "intent", entry.seq)
        if effect_record.intent == 0:
            effect_record.first = entry.seq
        if "again" not in said:  # the one before was too slow to be acted on
            effect_record.doubtful = effect_record.open
            effect_record.acts += 1
        effect_record.kind, effect_record.intent, effect_record.at, effect_record.args = (
            "intent",
            entry.seq,
            entry.at,
            entry.args,
        )
        effect_record.tried_anew = effect_record.looked_at
        effect_record.ended = -math.inf
        effect_record.open, effect_record.happened, effect_record.closed, effect_record.decision = (
            True,
            None,
            None,
            None,
        )
        effect_record.key, effect_record.timeout = said["key"], said["timeout"]
        effect_record.generation = said["generation"]
        effect_record.effect, effect_record.code, effect_record.arguments = (
            said["effect"],
            said["code"],
            said["arguments"],
        )
        effect_record.compensation, effect_record.threaded = said["compensation"], said["threaded"]
        effect_record.units = tuple(said.get("units", ()))

    def _compensation(self, entry: Entry | Record) -> None:
        said = json.loads(entry.value or "{}")
        self.records[entry.key] = EffectRecord(
            entry.key, "compensation", entry.seq, said["effect"], said["code"], entry.args, said["arguments"],
            units=tuple(said.get("units", ())), closed=entry, happened=True,
        )  # fmt: skip

    def _child(self, entry: Entry | Record) -> None:
        if entry.error is None:
            self.records[entry.key] = EffectRecord(
                entry.key, "child", entry.seq, closed=entry, happened=True
            )
            self._undid(entry)

    def _verify(self, entry: Entry | Record) -> None:
        effect_record = self.records[entry.key]
        if entry.args is not None:  # it says that it did not happen
            effect_record.open = effect_record.doubtful = False
            return
        effect_record.asked, effect_record.ask_at, effect_record.doubt = (
            entry.attempt or 0,
            float(entry.value or 0),
            entry.error,
        )

    def _decision(self, entry: Entry | Record) -> None:
        said = json.loads(entry.value or "{}")
        effect_record = self.records.get(entry.key)
        self._try_anew()
        if (effect_record is None or not effect_record.intent) and entry.key.startswith(UNDO):
            self._undid(entry)
            self.records[entry.key[len(UNDO) :]].by_hand = True
        elif effect_record is not None and effect_record.intent == said["intent"]:
            effect_record.decision = Decision(said["what"], said.get("value"))
            if said["what"] == "did_not":
                effect_record.open = effect_record.doubtful = False

    def _try_anew(self) -> None:
        for effect_record in self.records.values():
            if not effect_record.happened:
                effect_record.try_anew()

    def _undoing(self, entry: Entry | Record) -> None:
        self.undoing = entry.seq
        self._try_anew()

    def _close(self, effect_record: EffectRecord, entry: Entry | Record) -> None:
        effect_record.unsure = effect_record.open and entry.error in (CANCELLED, LEFT_OPEN)
        needless = (
            effect_record.compensation is None
            and not effect_record.place.startswith(UNDO)
            and entry.error is None
        )
        if (
            self.lean and needless
        ):  # nothing hangs on it any more but that it happened: its result is the workflow's
            effect_record.arguments, entry = "{}", entry._replace(value="null")
        effect_record.closed, effect_record.open, effect_record.value = entry, False, entry.value
        effect_record.doubtful = False
        effect_record.happened = entry.value is not None
        if effect_record.happened:
            self._undid(entry)

    def _undid(self, entry: Entry | Record) -> None:
        """If this is a compensation, what it compensates is undone."""
        if (
            entry.key.startswith(UNDO)
            and (what := self.records.get(entry.key[len(UNDO) :])) is not None
        ):
            what.undone = entry.seq

    # -- a retry

    def cut(self, start: int | None) -> int | None:
        """Where a retry that voids the journal from `start` must begin to void it, so that nothing undone passes for done."""
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
        """The journal is void from here. What was undone, or did not happen, is another effect when its place is reached again; what
        happened, or is open, is what it is."""
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
