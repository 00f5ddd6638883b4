"""Represent commands that wait to be written, and keep related ones in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from outlast.store.commands import Command


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
        self.command, self.done, self.deadline, self.in_thread = command, done, deadline, in_thread
        self.unsure = False
        """Whether an earlier attempt to write it may have succeeded."""


def subject_of(waiting: PendingCommand) -> Any:
    """Return what a command is about. Commands about the same thing stay in order.

    A command about no run, session or id has a subject of its own.
    """
    command: Any = waiting.command
    # A session command may also write an entry of a run: then it is about the run.
    command = getattr(command, "record", None) or command
    for kind in ("run", "session", "id"):
        subject = getattr(command, kind, None)
        if subject is not None:
            return kind, subject
    return id(waiting)


def take_all(queue: deque[PendingCommand]) -> list[PendingCommand]:
    """Empty a queue that other threads append to. Such a queue cannot be iterated over."""
    taken = []
    while queue:
        taken.append(queue.popleft())
    return taken


def split_expired(
    batch: list[PendingCommand], now: float
) -> tuple[list[PendingCommand], list[PendingCommand]]:
    """Return the commands past their deadline, with later ones for the same runs, and the rest.

    A run must not continue in the journal without an entry that was given up.
    """
    expired, left, runs = [], [], set()
    for waiting in batch:
        subject = subject_of(waiting)
        if waiting.deadline <= now or subject in runs:
            expired.append(waiting)
            if isinstance(subject, tuple) and subject[0] == "run":
                runs.add(subject)
        else:
            left.append(waiting)
    return expired, left
