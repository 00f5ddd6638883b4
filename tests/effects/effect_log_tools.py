"""Journal entries for the tests of the effect log."""

import json

from outlast.execution.effect_call import DID_NOT
from outlast.execution.effects_from_journal import EffectLog
from outlast.execution.journal import Journal
from outlast.store.rows import Entry

ERROR = json.dumps({"type": "builtins:ConnectionError", "message": "x"})


class JournalWriter:
    """Write a journal entry by entry, one a second."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def last(self) -> int:
        return len(self.entries)

    def add(self, kind: str, place: str = "pay#1", **fields) -> int:
        seq = len(self.entries) + 1
        self.entries.append(Entry(seq, kind, place, 100.0 + seq, **fields))
        return seq

    def intent(self, place: str = "pay#1", key: str = "k", generation: int = 0, **more) -> int:
        said = {
            "key": key,
            "effect": place.partition("#")[0],
            "code": "shop",
            "arguments": '{"amount":3}',
            "compensation": None,
            "timeout": 10.0,
            "threaded": False,
            "generation": generation,
        }
        return self.add(
            "intent", place, args="fingerprint", value=json.dumps(said | more), attempt=1
        )

    def happened(self, place: str = "pay#1", value: str = '"receipt"') -> int:
        return self.add("step", place, value=value)

    def did_not(self, place: str = "pay#1") -> int:
        return self.add("step", place, error=ERROR)

    def raised(
        self, place: str = "pay#1", attempt: int = 1, *, certain: bool = False, due: float = 7.0
    ) -> int:
        args = DID_NOT if certain else None
        return self.add("attempt", place, args=args, value=str(due), error=ERROR, attempt=attempt)

    def asked(self, place: str = "pay#1", attempt: int = 1, due: float = 9.0) -> int:
        return self.add("verify", place, value=str(due), error=ERROR, attempt=attempt)

    def verified_not(self, place: str = "pay#1") -> int:
        return self.add("verify", place, args=DID_NOT)

    def decided(self, what: str, intent: int, place: str = "pay#1", value: str = "null") -> int:
        return self.add(
            "decision", place, value=json.dumps({"what": what, "value": value, "intent": intent})
        )

    def retried(self, start: int | None) -> int:
        return self.add(
            "retry", "", value=json.dumps({"from": start, "was": "failed", "undoing": False})
        )

    def fold(self, *, lean: bool = False) -> EffectLog:
        return Journal(self.entries, lean=lean).effect_log

    def __getitem__(self, place: str):
        return self.fold().records[place]
