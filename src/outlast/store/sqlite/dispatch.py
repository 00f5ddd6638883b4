"""Apply commands on an open transaction: find the function that handles each kind.

The contracts of the commands are in `outlast.store.commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from outlast.store import commands
from outlast.store.sqlite import (
    claim_order,
    compensation,
    drains,
    entries,
    messages,
    pruning,
    queues,
    releasing,
    requests,
    sessions,
    streams,
    submitting,
    workers,
)
from outlast.store.sqlite.transaction import Transaction


def apply(transaction: Transaction, batch: Sequence[commands.Command]) -> list[Any]:
    """Apply the commands in order and return one outcome per command."""
    outcomes: list[Any] = []
    for kind, group in groupby(batch, type):
        if kind is commands.Record:
            outcomes += entries.record(transaction, list(group))  # type: ignore[arg-type]
        elif kind is commands.Submit:
            outcomes += submitting.submit(transaction, list(group))  # type: ignore[arg-type]
        else:
            handle = _HANDLERS[kind]
            outcomes += [handle(transaction, command) for command in group]
    transaction.write_counts()
    return outcomes


_HANDLERS: dict[type, Callable[[Transaction, Any], Any]] = {
    commands.SubmitMany: submitting.submit_many,
    commands.Claim: claim_order.claim,
    commands.SaveProgress: entries.save_progress,
    commands.Publish: streams.publish,
    commands.SetWaiting: entries.set_waiting,
    commands.Settle: releasing.settle,
    commands.Release: releasing.release,
    commands.Ack: releasing.ack,
    commands.Send: messages.send,
    commands.Undo: compensation.undo,
    commands.UndoChild: compensation.undo_child,
    commands.Cancel: requests.cancel,
    commands.Retry: requests.retry,
    commands.Resume: requests.resume,
    commands.Decide: requests.decide,
    commands.RegisterWorker: workers.register,
    commands.Renew: workers.renew,
    commands.DeregisterWorker: workers.deregister,
    commands.Sweep: workers.sweep,
    commands.Drain: drains.drain,
    commands.RequestDrain: drains.request_drain,
    commands.StoreDrainReport: drains.store_report,
    commands.RecordDurations: drains.record_durations,
    commands.SetQueueLimits: queues.set_limits,
    commands.Prune: pruning.prune,
    commands.UpdateSession: sessions.update,
    commands.UpdateSessions: sessions.update_several,
    commands.ExtendSession: sessions.extend,
    commands.DeleteSession: sessions.delete,
}
