"""Number the calls of a workflow, and keep those that no entry has answered."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol

from outlast.codec.identifiers import escape_name
from outlast.errors import Diverged, LimitExceeded
from outlast.execution.call_site import CallSite
from outlast.execution.journal import Journal
from outlast.execution.run_loop import RunLoop
from outlast.execution.source_lines import calling_line
from outlast.store.rows import EntryKind


class Check(Protocol):
    """Raise if a call may not be made now."""

    def __call__(self, *, while_cancelling: bool = False) -> None: ...


class CallTable:
    """The open calls of one run, by key.

    Every call of a workflow reserves a call site here.
    """

    __slots__ = (
        "_check",
        "_diverge",
        "_journal",
        "_limit",
        "_loop",
        "_run_id",
        "blocking_entries",
        "calls_made",
        "deferred",
        "has_children",
        "sites",
    )

    def __init__(
        self,
        run_id: str,
        journal: Journal,
        limit: int,
        loop: RunLoop,
        check: Check,
        diverge: Callable[[str, str], Diverged],
    ) -> None:
        """Create an empty table.

        `limit` is the setting `journal_entries_max`. `loop` knows the scope of the current code.
        """
        self._run_id = run_id
        self._journal = journal
        self._limit = limit
        self._loop = loop
        self._check = check
        self._diverge = diverge
        self.sites: dict[str, CallSite] = {}
        self.deferred: list[tuple[CallSite, Context]] = []
        """Calls that could not start at once, with their contexts."""
        self.blocking_entries: set[int] = set()
        """The numbers of entries that must be delivered before deferred calls start."""
        self.calls_made = 0
        """The number of entries the workflow has asked for. It is the same at the same point of
        every execution."""
        self.has_children = False
        """True if the run has called children."""

    def reserve(
        self,
        kind: EntryKind,
        name: str,
        args: str | None,
        *,
        key: str | None = None,
        while_cancelling: bool = False,
    ) -> CallSite:
        """Reserve the next call site of this name, which is escaped.

        With an explicit `key`, the tasks around the call do not matter, only its explicit scope.
        Raise Diverged if the journal has another call there. Only a function that the user's code
        calls may call this: `calling_line` skips its frame.
        """
        self._check(while_cancelling=while_cancelling)
        if key is None:
            full_key = self._loop.scope().key(name)
        else:
            scope = self._loop.explicit_scope() or self._loop.root
            full_key = scope.key(f"{name}[{escape_name(key)}]")
        site = self._add(kind, full_key, args)
        site.line = calling_line()
        return site

    def reserve_at(self, kind: EntryKind, key: str, args: str | None) -> CallSite:
        """Reserve the call site with this key, even while the run is being cancelled.

        Raise Diverged if the journal has another call there, and LimitExceeded if the workflow has
        made more than `journal_entries_max` calls.
        """
        self._check(while_cancelling=True)
        return self._add(kind, key, args)

    def _add(self, kind: EntryKind, key: str, args: str | None) -> CallSite:
        self.calls_made += 1
        if self.calls_made > self._limit:
            what = f"the journal of run {self._run_id!r}"
            raise LimitExceeded("journal_entries_max", self._limit, self.calls_made, what)
        if kind == "child":
            self.has_children = True
        site = CallSite(kind, key, args)
        recorded = self._journal.placed.get(key)
        if recorded is not None and (recorded.kind != kind or recorded.args != args):
            raise self._diverge(describe(recorded), str(site))
        self.sites[key] = site
        return site

    def answered(self, key: str) -> CallSite | None:
        """Remove and return the call site that an entry answers. None if there is none."""
        self._journal.placed.pop(key, None)
        return self.sites.pop(key, None)

    def timer_fired(self) -> None:
        """Count a fired timer like a call: both take an entry."""
        self.calls_made += 1

    def forget_unstarted(self, key: str) -> None:
        """Drop a call site whose task ended before its first turn. No task will await the call."""
        site = self.sites.get(key)
        if site is not None and site.coro is not None:
            del self.sites[key]

    @property
    def awaited(self) -> list[CallSite]:
        """Return the call sites whose coroutine a task has awaited."""
        return [site for site in self.sites.values() if site.coro is None]

    # -- calls that cannot start at once

    def defer(self, site: CallSite, context: Context) -> None:
        """Start a call later: after replay, or in the next execution."""
        self.deferred.append((site, context))

    def take_deferred(self) -> list[tuple[CallSite, Context]]:
        """Remove and return the deferred calls."""
        deferred, self.deferred = self.deferred, []
        return deferred

    @property
    def is_blocked(self) -> bool:
        """Return whether an entry must be delivered before deferred calls start."""
        return bool(self.blocking_entries)

    def block_until(self, seq: int) -> None:
        """Start no deferred call before this entry is delivered. It may cancel some of them."""
        self.blocking_entries.add(seq)

    def unblock(self, seq: int) -> bool:
        """Note a delivered entry. Return True if deferred calls waited only for it."""
        if seq not in self.blocking_entries:
            return False
        self.blocking_entries.discard(seq)
        return not self.blocking_entries


def describe(entry: Any) -> str:
    """Format an entry the way a call site formats itself."""
    return f"{entry.kind} {entry.key}({entry.args or ''})"
