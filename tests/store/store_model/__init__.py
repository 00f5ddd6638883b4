"""A model of a store: the contracts of `outlast.store.commands`, in plain Python over dicts.

There is a module for each module of commands. `state.py` has what they share.
"""

from outlast.store.commands import (
    Ack,
    Cancel,
    Claim,
    Decide,
    DeregisterWorker,
    Drain,
    Prune,
    Record,
    Refused,
    RegisterWorker,
    Release,
    Renew,
    Resume,
    Retry,
    Send,
    SetQueueLimits,
    Settle,
    Submit,
    SubmitMany,
    Sweep,
    Undo,
    UndoChild,
)
from store_model import claims, held_runs, requests, submission, upkeep, workers
from store_model.state import State

HANDLERS = {
    Submit: submission.submit,
    SubmitMany: submission.submit_many,
    Claim: claims.claim,
    Record: held_runs.record,
    Settle: held_runs.settle,
    Undo: held_runs.undo,
    Ack: held_runs.ack,
    Release: held_runs.release,
    Send: requests.send,
    Cancel: requests.cancel,
    Retry: requests.retry,
    Resume: requests.resume,
    Decide: requests.decide,
    UndoChild: requests.undo_child,
    RegisterWorker: workers.register_worker,
    Renew: workers.renew,
    DeregisterWorker: workers.deregister_worker,
    Drain: workers.drain,
    Sweep: workers.sweep,
    SetQueueLimits: upkeep.set_queue_limits,
    Prune: upkeep.prune,
}


class Model(State):
    """A store that checks the outcomes of another one."""

    def check(self, command, outcome) -> None:
        """Do what the command's contract says, and assert that the store had the same outcome."""
        expected = HANDLERS[type(command)](self, command, outcome)
        if isinstance(outcome, Refused) and isinstance(expected, str):
            outcome = outcome.why
        assert outcome == expected, (command, outcome, expected)
