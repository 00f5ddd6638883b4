"""Define what a program or a person asks of a run, whichever worker holds it."""

from __future__ import annotations

from typing import NamedTuple


class Send(NamedTuple):
    """Put a message into a run's mailbox. Result: None.

    Refused with UNKNOWN if there is no such run, with STATUS once it has ended, and with STATUS,
    "item", for an item, which cannot receive messages. A repeat of the same name and message id
    writes nothing, whatever its value. A run that waits for the name becomes claimable. A new
    message is refused with DEPTH, and their number, if the run was already sent `messages_max`
    messages, including those it has received. `by`, who sends it, is kept with the message.
    """

    id: str
    name: str
    message: str
    value: str
    messages_max: int | None = None
    by: str | None = None


class Cancel(NamedTuple):
    """Request that a run end. Result: its status after.

    Refused with UNKNOWN, or with STATUS once the run has ended. A run that never started, is parked
    or is a dead letter, and any unheld item, is cancelled at once. Any other run must be claimed so
    that its `finally` blocks execute. The first reason stays.

    A parked or dead run with an `intent` or `compensation` entry, or with children, is compensated
    first, as by `Undo`, and ends as cancelled. A run that is already being compensated and has not
    been settled is refused with STATUS, "undoing".
    """

    id: str
    why: str


class Retry(NamedTuple):
    """Queue a failed, cancelled or dead run again. Result: None. Refused with UNKNOWN or STATUS.

    A `retry` entry voids the journal from the entry that ended the run; everything before it is
    kept. A run that is being compensated may also be parked: its entry voids nothing, and its
    compensation continues. A repeat with the same token is accepted and does nothing, even if the
    run has ended again since.

    A child belongs to its parent. It is refused with PARENT, and the parent's status, if the parent
    has ended, is "undoing" or is "gone": no run would own what the child does. With `seen`, it is
    also refused with VERSION, and the seq of the parent's last entry, if that is not `seen`: the
    parent may have recorded the child's end. The compensation of a child continues in any case. An
    EACH is not checked: it does nothing until its parent asks for it.

    The JSON value of the entry has `by`, who retries the run, unless it is None.
    """

    id: str
    token: str
    seen: int | None = None
    by: str | None = None


class Resume(NamedTuple):
    """Queue a parked run again, or an EACH that is done, with a `resume` entry. Result: None.

    Refused with UNKNOWN or STATUS. A compensation continues. A repeat with the same token is
    accepted and does nothing, even if the run was parked again since. The JSON value of the entry
    has `by`, who resumes the run, unless it is None.
    """

    id: str
    token: str
    by: str | None = None


class Decide(NamedTuple):
    """Queue a parked run again with a person's decision about one of its effects. Result: None.

    `decision` is a JSON object. The token is added to it, and it becomes a `decision` entry under
    `key`. With a `verdict` the run is compensated from then on, as by `Undo`.

    Refused with UNKNOWN. Refused with STATUS, and its status, if it is not parked. Refused with
    VERSION, and the seq of its last entry, if that is not `seen`: the person decided on an older
    state. A repeat with the same token is accepted and does nothing, even if the run was parked
    again since.
    """

    id: str
    key: str
    decision: str
    seen: int
    token: str
    verdict: str | None = None


class UndoChild(NamedTuple):
    """Compensate a child that is done, as by `Undo`, to end as cancelled. Result: its status after.

    Refused with UNKNOWN if `parent` has no such child. A child without an `intent` or
    `compensation` entry, and without children of its own, has nothing to compensate and stays
    "done". A child in any other status stays as it is, including one that is already being
    compensated. Its value is kept until it is settled again.

    With `unheld`, also compensate a child that has started, has not ended (or is a dead letter) and
    is unowned, whatever it has done. Its own code is not executed.
    """

    id: str
    parent: str
    why: str
    unheld: bool = False
