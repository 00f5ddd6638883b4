"""Read the histories of runs, and keep those of long journals between requests.

A page of a timeline needs the whole journal: what a retry made void, what effects there are, what
was spent. A journal only grows, so the next page, and the same page a second later, read only what
was added. A history that nothing was added to is used as it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

from outlast.engine.journal_view import History, questions_of_parked
from outlast.engine.timeline import size_of
from outlast.http.rest.problems import Problem
from outlast.http.rest.requests import ENTRIES_MAX
from outlast.store.commands import EACH
from outlast.store.protocol import Store
from outlast.store.rows import Entry, RunRow

JOURNAL_SIZE_MAX = 64_000_000
"""The most characters of a journal that one request reads at once."""
KEPT_ENTRIES_MIN = 500
"""Shorter journals are read again for each request. That costs little."""
KEPT_SIZE_MAX = 8_000_000
"""The most characters of a journal that is kept."""
KEPT_MAX = 8
"""How many histories are kept, those that were used last."""
CHUNK, SMALL = 10, 100_000
"""How many entries are read at first, and how small they must be for more to be read at once."""


class HistoryCache:
    """The histories that were used last. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, History] = OrderedDict()

    def history(self, store: Store, row: RunRow, entries_max: int) -> History:
        """Return the history of a run. Raise Problem 413 if its journal is too large."""
        entries = store.last_seq(row.pk) if row.workflow != EACH else 0
        if entries > entries_max:
            raise too_large(row, f"{entries:,} entries")
        kept = self._known(row)
        if kept is not None and _is_current(store, kept, row, entries):
            return kept
        known = [] if kept is None else list(kept.entries)

        def journal(store: Store, pk: int) -> list[Entry]:
            found, size = list(known), sum(map(size_of, known))
            for chunk in chunks(store, pk, found[-1].seq if found else 0):
                found += chunk
                size += sum(map(size_of, chunk))
                if size > JOURNAL_SIZE_MAX:
                    raise too_large(row, f"more than {JOURNAL_SIZE_MAX:,} characters")
            return found

        history = History.of(store, row, journal)
        self._keep(history)
        return history

    def _known(self, row: RunRow) -> History | None:
        with self._lock:
            kept = self._kept.get(row.pk)
            # A store that was restored may use a number again.
            if kept is None or (kept.row.id, kept.row.created) != (row.id, row.created):
                return None
            self._kept.move_to_end(row.pk)
            return kept

    def _keep(self, history: History) -> None:
        entries = history.entries
        is_counted = history.done is not None
        if (
            is_counted
            or len(entries) < KEPT_ENTRIES_MIN
            or sum(map(size_of, entries)) > KEPT_SIZE_MAX
        ):
            return
        with self._lock:
            self._kept[history.row.pk] = history
            self._kept.move_to_end(history.row.pk)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)


def _is_current(store: Store, kept: History, row: RunRow, last_seq: int) -> bool:
    """Return whether nothing of a run has changed since its history was read."""
    return (
        kept.row == row
        and kept.entries[-1].seq == last_seq
        and list(kept.messages) == store.messages(row.pk)
        and list(kept.executions) == store.executions(row.pk)
        and kept.questions == questions_of_parked(store, row)
    )


def chunks(store: Store, pk: int, after: int) -> Iterator[list[Entry]]:
    """Yield a journal in parts, small ones where its entries are large."""
    count = CHUNK
    while chunk := store.journal(pk, after, count):
        yield chunk
        after = chunk[-1].seq
        is_small = sum(map(size_of, chunk)) < SMALL
        count = min(2 * count, ENTRIES_MAX) if is_small else CHUNK


def too_large(row: RunRow, found: str) -> Problem:
    return Problem(
        413,
        f"The journal of run {row.id!r} is too large for one answer: {found}.",
        next="Read /v1/runs/{id}?brief=true and the pages of /v1/runs/{id}/journal.",
        kind="JournalTooLong",
    )
