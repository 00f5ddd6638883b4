"""Represent commands that wait to be written, and keep related ones in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from outlast.store.commands import Command, UpdateSessions

log = logging.getLogger("outlast.writer")


class PendingCommand:
    """A command to be written, the callback for its outcome, and its deadline.

    The outcome is a result, a Refused, or a StoreError.
    """

    __slots__ = ("command", "deadline", "done", "in_thread", "unsure")

    def __init__(
        self,
        command: Command,
        done: Callable[[Command, Any], None],
        deadline: float,
        *,
        in_thread: bool = False,
    ) -> None:
        self.command = command
        self.done = done
        self.deadline = deadline
        self.in_thread = in_thread
        self.unsure = False
        """Whether an earlier attempt to write it may have succeeded."""


def subject_of(waiting: PendingCommand) -> Any:
    """Return what a command is about. Commands about the same thing stay in order.

    A command about no run, session or id has a subject of its own.
    """
    command: Any = waiting.command
    # A session command may also write an entry of a run: then it is about the run.
    command = getattr(command, "record", None) or command
    if isinstance(command, UpdateSessions):
        # The first session is enough: concurrent changes of sessions may come in any order.
        return "session", command.changes[0].session
    for kind in ("run", "session", "id"):
        subject = getattr(command, kind, None)
        if subject is not None:
            return kind, subject
    return id(waiting)


def split_expired(
    batch: list[PendingCommand], now: float
) -> tuple[list[PendingCommand], list[PendingCommand]]:
    """Return the commands past their deadline, with later ones for the same runs, and the rest.

    A run must not continue in the journal without an entry that was given up.
    """
    expired = []
    left = []
    runs = set()
    for waiting in batch:
        subject = subject_of(waiting)
        if waiting.deadline <= now or subject in runs:
            expired.append(waiting)
            if isinstance(subject, tuple) and subject[0] == "run":
                runs.add(subject)
        else:
            left.append(waiting)
    return expired, left


def deliver_outcomes(batch: list[PendingCommand], outcomes: list[Any]) -> None:
    """Call the callback of each command. One that fails does not keep the others from theirs."""
    for waiting, outcome in zip(batch, outcomes, strict=True):
        try:
            waiting.done(waiting.command, outcome)
        except Exception:
            log.exception("Failed to deliver the outcome of %s.", type(waiting.command).__name__)
