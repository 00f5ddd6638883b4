"""Read a run's journal as its history: what still counts, what was received, what is pending."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outlast.codec.documents import value_of
from outlast.engine.budget_store import questions_of
from outlast.engine.death_view import cut_off, ends_of_executions, waits_for_decisions
from outlast.engine.decisions import undecided
from outlast.errors.reasons import EXHAUSTED
from outlast.execution.compensation import CHILDREN
from outlast.execution.effects_from_journal import EffectLog, EffectRecord
from outlast.execution.journal import DELIVERED, Journal
from outlast.execution.run_cost import RunCost
from outlast.store.commands import EACH
from outlast.store.protocol import Store, whole_journal
from outlast.store.rows import Entry, ExecutionRow, Message, RunQuery, RunRow


class History:
    """Everything that there is to show of one run, folded from its journal."""

    # 20 attributes: one for each part of what `show` prints.

    def __init__(
        self,
        row: RunRow,
        entries: Sequence[Entry],
        messages: Sequence[Message],
        executions: Sequence[ExecutionRow],
        done: int | None = None,
    ) -> None:
        self.row = row
        self.entries = entries
        self.messages = messages
        self.done = done
        """The done items of an `each` or `map`: their entries are counted, not read."""
        self.total: int | None = None
        """The number of items, if known."""
        self.has_children = True
        """False only if the run is known to have no children."""
        self.mail = {message.number: message for message in messages}
        self.void: set[int] = set()
        """Sequence numbers of the entries that a retry made void."""
        self.received: set[int] = set()
        """Numbers of the messages that the run has received."""
        self.retrying: dict[str, Entry] = {}
        """Steps whose last attempt failed and that will be retried, by key."""
        self.account = RunCost(entries)
        self.by_seq = {entry.seq: entry for entry in entries}
        self.effects = {entry.key for entry in entries if entry.kind == "intent"}
        """The call sites of effects and their compensations."""
        self.cuts: dict[int, int | None] = {}
        """The sequence number from which each retry made the journal void, by the retry's own."""
        self.cut_off = cut_off(entries)
        """The worker that died during each attempt of an effect, by the number of its intent."""
        self.open_for = waits_for_decisions(entries)
        """For how many seconds an effect was open before each decision, by the entry's number."""
        self.questions: dict[str, str] = {}
        """What a parked run asks about budgets, by the ids of the budgets."""
        self.executions = executions
        """The executions of the run, oldest first."""
        self.ends = ends_of_executions(entries, executions)
        """Which worker lost the run by each death and interruption, and which one went on."""
        self._journal: Journal | None = Journal()
        for entry in entries:
            self._add(entry)

    @property
    def effect_log(self) -> EffectLog | None:
        """Return the run's effects on the outside world, or None if they cannot be read."""
        return self._journal.effect_log if self._journal is not None else None

    @property
    def undecided(self) -> list[EffectRecord]:
        """Return the effects a person can decide now, newest first.

        For a parked run these are its open effects and its failed compensations.
        """
        if self.effect_log is None or self.row.status != "parked":
            return []
        return undecided(self.effect_log)

    @classmethod
    def of(
        cls, store: Store, row: RunRow, journal: Callable[[Store, int], list[Entry]] = whole_journal
    ) -> History:
        """Read the history of a run. `journal` reads its entries."""
        messages, executions = store.messages(row.pk), store.executions(row.pk)
        if row.workflow == EACH:
            done = store.done_count(row.pk)
            return cls(row, store.history(row.pk), messages, executions, done)
        history = cls(row, journal(store, row.pk), messages, executions)
        history.questions = questions_of_parked(store, row)
        if any(entry.key == CHILDREN for entry in history.entries):
            history.has_children = bool(store.runs(RunQuery(parent=row.id, items=None, limit=1)))
        return history

    def _add(self, entry: Entry) -> None:
        start = self._fold(entry)
        if entry.kind == "items":
            value = value_of(entry.value)
            total = value.get("total") if isinstance(value, dict) else None
            self.total = total if isinstance(total, int) else None
        elif entry.kind == "retry":
            self.cuts[entry.seq] = start
            if start is not None:
                self._undo(start, entry.seq)
        elif entry.kind == "message":
            self.received.add(_number(entry))
        elif entry.kind == "attempt":
            self.retrying[entry.key] = entry
        elif entry.kind == "step":
            self.retrying.pop(entry.key, None)

    def _fold(self, entry: Entry) -> int | None:
        """Fold the entry into the journal as replay does.

        Return the sequence number from which the entry makes the journal void, or None.
        """
        value = value_of(entry.value) if entry.kind == "retry" else None
        retry = value if isinstance(value, dict) else {}
        start = retry.get("from") if isinstance(retry.get("from"), int) else None
        if self._journal is None:
            return start
        try:
            if entry.kind == "retry":
                start = None if retry.get("undoing") else self._journal.effect_log.cut(start)
            self._journal.add(entry)
        except Exception:
            # Damaged, or written by another version. Readers need not stop.
            self._journal = None
        return start

    def _undo(self, start: int, end: int) -> None:
        for entry in self.entries:
            if start <= entry.seq < end and entry.kind in DELIVERED:
                self.void.add(entry.seq)
                if entry.kind == "message":
                    self.received.discard(_number(entry))

    @property
    def unread(self) -> list[Message]:
        return [message for message in self.messages if message.number not in self.received]


def questions_of_parked(store: Store, row: RunRow) -> dict[str, str]:
    """Return what a run asks about budgets, if it is parked because of one."""
    is_asking = row.status == "parked" and EXHAUSTED in (row.reason or "")
    return questions_of(store, row.id) if is_asking else {}


def _number(entry: Entry) -> int:
    """Return the number of the message that an entry is about, or 0 for none."""
    value = value_of(entry.value)
    return value if isinstance(value, int) else 0
