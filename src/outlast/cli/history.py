"""A run's journal, read as its history: what still counts, what was received, what is pending."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.cli.documents import value_of
from outlast.replay.journal import DELIVERED
from outlast.store.protocol import Store, whole_journal
from outlast.store.rows import Entry, Message, RunRow
from outlast.store.verbs import EACH


class History:
    def __init__(
        self, row: RunRow, entries: Sequence[Entry], messages: Sequence[Message], done: int | None = None
    ) -> None:
        self.row, self.entries, self.messages = row, entries, messages
        self.done = done
        """How many items are done, if it is an `each` or a `map`: these entries are counted, not read."""
        self.total: int | None = None
        """How many items there are, if that is known."""
        self.mail = {message.number: message for message in messages}
        self.void: set[int] = set()
        """Entries that a retry has made void."""
        self.received: set[int] = set()
        """Numbers of the messages that the run has taken."""
        self.retrying: dict[str, Entry] = {}
        """Steps whose last attempt failed and that will be tried again, by key."""
        for entry in entries:
            self._add(entry)

    @classmethod
    def of(cls, store: Store, row: RunRow) -> History:
        if row.workflow == EACH:
            return cls(row, store.history(row.pk), store.messages(row.pk), store.done_count(row.pk))
        return cls(row, whole_journal(store, row.pk), store.messages(row.pk))

    def _add(self, entry: Entry) -> None:
        if entry.kind == "items":
            value = value_of(entry.value)
            total = value.get("total") if isinstance(value, dict) else None
            self.total = total if isinstance(total, int) else None
        elif entry.kind == "retry":
            value = value_of(entry.value)
            start = value.get("from") if isinstance(value, dict) else None
            if isinstance(start, int):
                self._undo(start, entry.seq)
        elif entry.kind == "message":
            self.received.add(_number(entry))
        elif entry.kind == "attempt":
            self.retrying[entry.key] = entry
        elif entry.kind == "step":
            self.retrying.pop(entry.key, None)

    def _undo(self, start: int, end: int) -> None:
        for entry in self.entries:
            if start <= entry.seq < end and entry.kind in DELIVERED:
                self.void.add(entry.seq)
                if entry.kind == "message":
                    self.received.discard(_number(entry))

    @property
    def unread(self) -> list[Message]:
        return [message for message in self.messages if message.number not in self.received]


def _number(entry: Entry) -> int:
    """Of the message that an entry is about; 0 is none."""
    value = value_of(entry.value)
    return value if isinstance(value, int) else 0
