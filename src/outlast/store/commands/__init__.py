"""Define the commands: everything that can be written to a store.

A command is a small immutable value. `Store.commit` takes any mixture of them, applies them in
order in one transaction, and returns one outcome per command: its result, or a `Refused`. A refused
command has changed nothing and does not affect the others in the batch. A command may be committed
again under the same ids when the outcome of the first commit is unknown. Its contract says what a
repeat does.

**Fenced** commands carry `run` (the run's number in the store) and `fence`. They are refused with
`FENCE` unless the run still has that fence. The comparison is part of the statement that writes.
Fences come from one counter per store and only grow, across all runs and across pruning. A void
fence is stored as its negative, which no execution ever holds.

    submission   insert runs
    held_runs    claim runs, and write about those that a worker holds
    requests     ask something of a run, whichever worker holds it
    workers      register, renew, sweep and drain workers
    sessions     change sessions
    streams      publish values to the streams of a run
    upkeep       limit queues, sample durations, prune
    refusals     why a command was refused
"""

from __future__ import annotations

from typing import TypeAlias

from outlast.store.commands.held_runs import (
    Ack,
    Claim,
    Record,
    Release,
    SaveProgress,
    Settle,
    SetWaiting,
    Undo,
    verdict,
)
from outlast.store.commands.refusals import (
    CANCEL,
    CONFLICT,
    DEPTH,
    DRAINING,
    FENCE,
    INDEX,
    LIMIT,
    OFFSET,
    OWNER,
    PARENT,
    PRESENT,
    STATUS,
    UNKNOWN,
    VERSION,
    WORKER,
    Refused,
)
from outlast.store.commands.requests import (
    Cancel,
    Decide,
    Resume,
    Retry,
    Send,
    UndoChild,
)
from outlast.store.commands.sessions import (
    CHECKPOINT,
    SESSION,
    SESSION_MEMORY,
    TOKENS_MAX,
    Append,
    Changed,
    DeleteSession,
    ExtendSession,
    Replace,
    SessionLimits,
    UpdateSession,
    UpdateSessions,
)
from outlast.store.commands.streams import FOLD_MAX, Publish, chunk_of
from outlast.store.commands.submission import (
    EACH,
    ITEM,
    Submit,
    SubmitMany,
    Submitted,
)
from outlast.store.commands.upkeep import (
    DURATIONS_MAX,
    Prune,
    RecordDurations,
    SetQueueLimits,
)
from outlast.store.commands.workers import (
    DRAINS_MAX,
    DeregisterWorker,
    Drain,
    RegisterWorker,
    Renew,
    RequestDrain,
    StoreDrainReport,
    Sweep,
    Swept,
)

Command: TypeAlias = (
    Submit
    | SubmitMany
    | Claim
    | Record
    | SaveProgress
    | Publish
    | SetWaiting
    | Settle
    | Release
    | Undo
    | Ack
    | Send
    | Cancel
    | Retry
    | Resume
    | Decide
    | UndoChild
    | RegisterWorker
    | Renew
    | DeregisterWorker
    | Sweep
    | Drain
    | RequestDrain
    | StoreDrainReport
    | RecordDurations
    | SetQueueLimits
    | Prune
    | UpdateSession
    | UpdateSessions
    | ExtendSession
    | DeleteSession
)

LOUD = (
    Submit,
    SubmitMany,
    Settle,
    Release,
    Undo,
    Send,
    Cancel,
    Retry,
    Resume,
    Decide,
    UndoChild,
    DeregisterWorker,
    RequestDrain,
    SetQueueLimits,
)
"""Commands that other processes may wait for: a commit with one of them notifies. So does a Sweep
that found something, a Drain that released something, and any command that frees a slot in a queue
with a limit.
"""

LOUD_AT_HOME = (
    Submit,
    SubmitMany,
    Send,
    Cancel,
    Retry,
    Resume,
    Release,
    Undo,
    Decide,
    UndoChild,
    RequestDrain,
    SetQueueLimits,
)
"""Commands that this process's own runs, claimer and consumers may wait for. It already knows what
it settles itself.
"""

__all__ = [
    "CANCEL",
    "CHECKPOINT",
    "CONFLICT",
    "DEPTH",
    "DRAINING",
    "DRAINS_MAX",
    "DURATIONS_MAX",
    "EACH",
    "FENCE",
    "FOLD_MAX",
    "INDEX",
    "ITEM",
    "LIMIT",
    "LOUD",
    "LOUD_AT_HOME",
    "OFFSET",
    "OWNER",
    "PARENT",
    "PRESENT",
    "SESSION",
    "SESSION_MEMORY",
    "STATUS",
    "TOKENS_MAX",
    "UNKNOWN",
    "VERSION",
    "WORKER",
    "Ack",
    "Append",
    "Cancel",
    "Changed",
    "Claim",
    "Command",
    "Decide",
    "DeleteSession",
    "DeregisterWorker",
    "Drain",
    "ExtendSession",
    "Prune",
    "Publish",
    "Record",
    "RecordDurations",
    "Refused",
    "RegisterWorker",
    "Release",
    "Renew",
    "Replace",
    "RequestDrain",
    "Resume",
    "Retry",
    "SaveProgress",
    "Send",
    "SessionLimits",
    "SetQueueLimits",
    "SetWaiting",
    "Settle",
    "StoreDrainReport",
    "Submit",
    "SubmitMany",
    "Submitted",
    "Sweep",
    "Swept",
    "Undo",
    "UndoChild",
    "UpdateSession",
    "UpdateSessions",
    "chunk_of",
    "verdict",
]
