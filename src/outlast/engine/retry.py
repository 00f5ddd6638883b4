"""Retry a run.

A parent retries its children. A child alone is retried only while its parent waits.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from outlast.errors import WrongStatus
from outlast.execution.call_site import child_id
from outlast.store.commands import EACH, PARENT, VERSION, Refused, Retry
from outlast.store.protocol import Store, whole_journal
from outlast.store.tolerant_rows import legible

if TYPE_CHECKING:
    from outlast.engine.store_client import StoreClient
    from outlast.store.rows import RunRow

TRIES_MAX = 20
"""How often the parent's journal is read again if the parent keeps recording."""


async def retry(
    client: StoreClient, row: RunRow, token: str, id_length_max: int, by: str | None = None
) -> Any:
    """Queue a run again and return the store's outcome. A repeat with the same token does nothing.

    Raise WrongStatus for a child that only its parent can retry.
    """
    if row.parent is None or row.undoing is not None or row.workflow == EACH:
        outcome = await client.writer.execute(Retry(row.id, token, by=by))
        return await _check(client, row, outcome)
    for _ in range(TRIES_MAX):
        parent = await client.read(client.store.run, row.parent)
        seen = 0
        if parent is not None:
            seen = await client.read(_last_seen, client.store, row, parent, id_length_max)
        outcome = await client.writer.execute(Retry(row.id, token, seen, by))
        if not (isinstance(outcome, Refused) and outcome.why == VERSION):
            return await _check(client, row, outcome)
    raise WrongStatus(
        f"run {row.id!r} was not retried: its parent {row.parent!r} keeps writing entries, so it "
        "is not known whether the parent still waits for this run. Try again."
    )


def _last_seen(store: Store, row: RunRow, parent: RunRow, id_length_max: int) -> int:
    """Return the number of the parent's last entry.

    Raise WrongStatus if the parent has recorded the child's end.
    """
    from outlast.execution.journal import Journal

    with legible(f"the journal of run {parent.id!r}"):
        journal = Journal(whole_journal(store, parent.pk))
    ended = row.status in ("failed", "cancelled", "dead")
    goes_on = parent.ended is None and parent.undoing is None
    for key, entry in journal.placed.items():
        is_it = entry.kind == "child" and child_id(parent.id, key, id_length_max) == row.id
        if ended and goes_on and is_it:
            raise WrongStatus(
                f"run {row.id!r} is a child of run {parent.id!r}, which has recorded the child's "
                "end and continued without it. To execute it again, retry the parent once that has "
                f"ended: `outlast retry {quote(parent.id)}`."
            )
    return journal.last_seq


async def _check(client: StoreClient, row: RunRow, outcome: Any) -> Any:
    """Return the outcome. Raise WrongStatus if the store refused it because of the parent."""
    if not (isinstance(outcome, Refused) and outcome.why == PARENT):
        return outcome
    child = f"run {row.id!r} is a child of run {row.parent!r}, which "
    if outcome.detail in ("gone", "done"):
        state = "was pruned" if outcome.detail == "gone" else "is done"
        raise WrongStatus(
            f"{child}{state}, so no run would compensate what a retry does. Start a new run "
            "instead."
        )
    undoing = outcome.detail == "undoing"
    state = "is being compensated" if undoing else f"is {outcome.detail}"
    then = "When that has ended, retry" if undoing else "Retry"
    top = await _topmost(client, row)
    raise WrongStatus(
        f"{child}{state}. A child is retried by its parent. {then} the parent, which retries its "
        f"children: `outlast retry {quote(top)}`."
    )


async def _topmost(client: StoreClient, row: RunRow) -> str:
    """Return the run to retry: the highest ancestor that has ended or is being compensated."""
    top, seen = row, {row.id}
    while top.parent is not None and top.parent not in seen:
        parent = await client.read(client.store.run, top.parent)
        if parent is None or parent.status == "done":
            break
        if parent.ended is None and parent.undoing is None:
            break
        seen.add(parent.id)
        top = parent
    return top.id if top is not row else str(row.parent)
