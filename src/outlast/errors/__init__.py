"""Every error Outlast raises.

    Exception
    └── OutlastError
        ├── NotInRun            called outside a run, or where a run's calls cannot be made
        │   └── NotInStep       I/O on the run's own loop: it belongs in a step
        ├── BadName             an id or a name that cannot be stored or shown
        ├── BadCursor           a cursor that does not belong to this stream of this run
        ├── LimitExceeded       a limit of the settings; nothing was written
        ├── Unrecordable        a value that JSON and its annotation cannot carry
        ├── SettingsError       an unknown or impossible setting, or a bad store address
        ├── UnknownRun          no run has this id
        ├── UnknownSchedule     no schedule has this name
        ├── UnknownEffect       no single effect of the run with this name awaits a decision
        ├── DuplicateName       two workflows or two effects share a name
        ├── Backpressure        the queue is full; nothing was written
        ├── BudgetExhausted     a budget has nothing left for an effect that is executing
        ├── Draining            this process is shutting down and accepts nothing new
        ├── LeaseLost           another worker has taken over the item
        ├── Conflict            this id was started with another workflow or other arguments
        │   └── AlreadySubmitted  another run was submitted in the same window
        ├── VersionConflict     the session has changed since; nothing was written
        ├── NotOwner            the session has a new owner; nothing was written
        ├── WrongStatus         the run is not in a status that allows this
        ├── StaleFence          an outside system has seen a younger claim (outlast.fencing)
        ├── StepFailed          a recorded exception that could not be rebuilt as its own type
        ├── StepTimeout         (also TimeoutError) an attempt took longer than its timeout
        ├── StreamStalled       (also TimeoutError) a stream sent nothing for too long
        ├── CannotResume        for your code to raise: the provider cannot resume a stream
        ├── RunError            how a run ended, when not with a result
        │   ├── RunFailed       its workflow raised (and the exception could not be rebuilt)
        │   ├── RunTimeout      (also TimeoutError) it took longer than its timeout
        │   ├── Abandoned       no worker took it for too long; its effects were compensated
        │   ├── RunCancelled    it was cancelled
        │   ├── RunParked       it waits for a person
        │   └── RunDead         it is a dead letter
        └── StoreError
            ├── StoreUnavailable   nothing was written, and trying again may help
            ├── StoreBroken        corrupt, or not an Outlast store
            └── StoreTooNew        written by a newer Outlast

    BaseException               never caught by `except Exception`: user code must not swallow these
    ├── Evicted                 this execution is over; the run continues elsewhere or later
    └── Diverged                the code asked for something other than the journal recorded

An interruption is not a failure: `Evicted` never ends a run.

Each error names its page in a note (PEP 678), such as `outlast explain Backpressure`. The note is
not part of `str(error)`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from shlex import quote

from outlast.errors.explained import Explained
from outlast.errors.reasons import DIVERGED
from outlast.errors.sentences import stopped


class OutlastError(Explained, Exception):
    """The root of every error that a program may catch."""


class NotInRun(OutlastError):
    """The call was made outside a run.

    Start one with `run(...)` or `app.start(...)`; a step's plain function is `.fn`. A call that
    workflow code may not make also fails the run, even if the workflow catches the error.
    """


class NotInStep(NotInRun):
    """The workflow's own code tried to do I/O. Put it into a step.

    The run stops and fails with this error, even if the workflow catches it. The message names the
    user's line.
    """


class BadName(OutlastError, ValueError):
    """An id or a name that cannot be stored or shown. Nothing was written."""


class BadCursor(OutlastError, ValueError):
    """A cursor that is damaged, or that belongs to another run or stream. Nothing was read."""


class LimitExceeded(OutlastError):
    """A limit of the settings was exceeded. Nothing was written."""

    def __init__(self, limit: str, allowed: float, asked: float, what: str) -> None:
        self.limit = limit
        self.allowed = allowed
        self.asked = asked
        self.what = what
        super().__init__(limit, allowed, asked, what)

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.asked:,} is more than {self.limit}={self.allowed:,}. "
            f"Make it smaller, or raise the limit (OUTLAST_{self.limit.upper()})."
        )


class Unrecordable(OutlastError, TypeError):
    """A value that cannot be recorded as JSON by its annotation."""


class SettingsError(OutlastError, ValueError):
    """An unknown or impossible setting, or an invalid store address."""


class UnknownEffect(OutlastError, LookupError):
    """The run has no effect with this name that awaits a decision, or it has several."""

    def __init__(self, id: str, effect: str, there: list[str]) -> None:
        self.id = id
        self.effect = effect
        self.there = there
        super().__init__(id, effect, there)

    def __str__(self) -> str:
        there = ", ".join(self.there) or "none"
        return (
            f"{self.effect!r} does not name exactly one effect of run {self.id!r} that waits for a "
            f"decision. Effects that wait for one: {there}."
        )


class UnknownRun(OutlastError, LookupError):
    """No run has this id: it was never started in this store, or it was pruned."""

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(id)

    def __str__(self) -> str:
        return f"no run has the id {self.id!r}. `outlast runs` lists the existing ones."


class UnknownSchedule(OutlastError, LookupError):
    """No schedule has this name: it was never set in this store, or it was deleted."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)

    def __str__(self) -> str:
        return (
            f"no schedule has the name {self.name!r}. `outlast schedules` lists the existing ones."
        )


class DuplicateName(OutlastError, ValueError):
    """Two workflows, or two effects, share a name, so their records could not be told apart.

    Give one of them another `name`.
    """


class Backpressure(OutlastError):
    """The queue is full: it holds `depth` of at most `limit`. Nothing was written.

    Pass `wait=seconds` to wait for room.
    """

    def __init__(self, queue: str, depth: int, limit: int) -> None:
        self.queue = queue
        self.depth = depth
        self.limit = limit
        super().__init__(queue, depth, limit)

    def __str__(self) -> str:
        return (
            f"queue {self.queue!r} is full: {self.depth:,} queued, at most {self.limit:,}. "
            "Nothing was written. Wait for room (wait=seconds, --wait), start more workers, or "
            "raise the limit (`outlast limit`, or OUTLAST_QUEUE_DEPTH_MAX for queues without one "
            "of their own)."
        )


class BudgetExhausted(OutlastError):
    """A budget has nothing left for a use in the body of an effect.

    The effect may have begun, so Outlast cannot end it and park the run. Use the budget in a step
    before the effect, or name this error in the effect's `failed_on`.
    """

    def __init__(self, budget: str, question: str) -> None:
        self.budget = budget
        self.question = question
        super().__init__(budget, question)

    def __str__(self) -> str:
        return f"budget {self.budget!r} is exhausted: {self.question}."


class Draining(OutlastError):
    """This process is shutting down and accepts nothing new.

    Nothing was written. Submit the work from another process. A viewer of a run watches it from
    another process, after `cursor`.
    """

    cursor: str | None = None
    """The cursor of the last event of a watch that this ended, if it had one."""


class LeaseLost(OutlastError):
    """Another worker has taken over the item, because this one was considered dead.

    The store refused what this worker wanted to record about the item.
    """


class Conflict(OutlastError):
    """This id was started before, with another workflow or other arguments."""

    def __init__(self, id: str, recorded: str, asked: str) -> None:
        self.id = id
        self.recorded = recorded
        self.asked = asked
        super().__init__(id, recorded, asked)

    def __str__(self) -> str:
        if not self.recorded:
            return (
                f"the id {self.id!r} belongs to a run with another workflow or other arguments. An "
                "id is an idempotency key: use another id for other work."
            )
        if self.recorded.partition("(")[0] == self.asked.partition("(")[0]:
            hint = (
                "To wait for the recorded run instead, join it: "
                'on_conflict="join", or `outlast submit --join`.'
            )
        else:
            hint = (
                "If you renamed the workflow, keep its old name for its runs: @workflow(name=...)."
            )
        return (
            f"run {self.id!r} was started as {self.recorded}, but this call is {self.asked}. "
            f"An id is an idempotency key: use another id for other work. {hint}"
        )


class AlreadySubmitted(Conflict):
    """A run was submitted in the same window, and the submission rejects repeats."""

    def __init__(self, id: str, until: datetime) -> None:
        super().__init__(id, "", "")
        self.until = until
        """When the window ends."""
        self.args = (id, until)

    def __str__(self) -> str:
        until = self.until.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
        return (
            f"run {self.id!r} was submitted in the same window, which ends at {until}Z. To get "
            "that run, submit with on_repeat='join'. To take its place, use on_repeat='replace'."
        )


class VersionConflict(OutlastError):
    """The session is not at the version that the change expected, because it has changed since.

    Nothing was written. `current` is the session's version, 0 if the session does not exist.
    """

    def __init__(self, session: str, expected: int, current: int) -> None:
        self.session = session
        self.expected = expected
        self.current = current
        super().__init__(session, expected, current)

    def __str__(self) -> str:
        if not self.current:
            return (
                f"session {self.session!r} does not exist, so it is not at version "
                f"{self.expected}. It has expired, was cleared, or was never made. "
                "Nothing was written."
            )
        return (
            f"session {self.session!r} is at version {self.current}, not {self.expected}: it has "
            "changed since. Nothing was written. Read it again, and apply your change to the new "
            "version."
        )


class NotOwner(OutlastError):
    """Another handle has taken the session since this one did, or the session is gone.

    Nothing was written. `owner` is the number of this handle, `current` that of the new owner: 0 if
    the session expired or was deleted.
    """

    def __init__(self, session: str, owner: int, current: int) -> None:
        self.session = session
        self.owner = owner
        self.current = current
        super().__init__(session, owner, current)

    def __str__(self) -> str:
        if not self.current:
            return (
                f"session {self.session!r} no longer has an owner: it has expired or was cleared. "
                "Nothing was written. Take it again."
            )
        return (
            f"session {self.session!r} has a new owner (number {self.current}, this one has "
            f"{self.owner}). Nothing was written. Stop writing to it."
        )


class WrongStatus(OutlastError):
    """The run is not in a status that allows this."""


class StaleFence(OutlastError):
    """A guard of `outlast.fencing` refused a write: a newer claim has written to the resource.

    Nothing was written.
    """

    def __init__(self, resource: str, fence: int, newest: int | None = None) -> None:
        self.resource = resource
        self.fence = fence
        self.newest = newest
        super().__init__(resource, fence, newest)

    def __str__(self) -> str:
        younger = "a newer fence" if self.newest is None else f"fence {self.newest}"
        return (
            f"{self.resource!r} was written under {younger}, and fence {self.fence} is older. "
            "Another worker has taken over: stop, and do not try again under this claim."
        )


class StepFailed(OutlastError):
    """A step raised an exception that could not be rebuilt as its own type.

    `type_name`, `message` and `traceback_text` come from the original exception.
    """

    def __init__(self, type_name: str, message: str, traceback_text: str = "") -> None:
        self.type_name = type_name
        self.message = message
        self.traceback_text = traceback_text
        super().__init__(type_name, message, traceback_text)

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}"


class StepTimeout(OutlastError, TimeoutError):
    """One attempt of a step took longer than its `timeout`."""


class StreamStalled(OutlastError, TimeoutError):
    """A stream sent nothing for longer than its `stall`.

    What had arrived is saved for the next attempt of the step.
    """


class CannotResume(OutlastError):
    """The provider of a stream cannot continue from where it stopped.

    The function that `resume_stream` opens a stream with raises this. The stream then starts from
    the beginning.
    """


class RunError(OutlastError):
    """A run ended or is parked without a result."""

    def __init__(self, id: str, reason: str = "") -> None:
        self.id = id
        self.reason = reason
        super().__init__(id, reason)

    def __str__(self) -> str:
        return f"run {self.id!r} {self._ended}" + (f": {self.reason}" if self.reason else "")

    _ended = "ended without a result"


class RunFailed(RunError):
    """The workflow raised an exception that could not be rebuilt as its own type."""

    _ended = "failed"

    def __init__(self, id: str, reason: str = "", traceback_text: str = "") -> None:
        super().__init__(id, reason)
        self.traceback_text = traceback_text


class RunTimeout(RunError, TimeoutError):
    """The run took longer than its workflow's `timeout`. `reason` is that time-out, if known."""

    def __str__(self) -> str:
        timeout = f" of {self.reason}" if self.reason else ""
        return f"run {self.id!r} took longer than its timeout{timeout}"


class Abandoned(RunError):
    """No worker took the run for longer than its workflow's `abandon_after`.

    Its effects were compensated. Start it again with `outlast retry ID`.
    """

    def __init__(self, id: str, seconds: float) -> None:
        super().__init__(id)
        self.seconds = seconds
        self.args = (id, seconds)

    def __str__(self) -> str:
        return (
            f"run {self.id!r} was abandoned: no worker took it for {self.seconds:,.1f} seconds, "
            f"and its effects were compensated. Start it again with `outlast retry {self.id}`."
        )


class RunCancelled(RunError):
    """The run was cancelled (`outlast cancel ID`), and its effects were compensated."""

    _ended = "was cancelled"


class RunParked(RunError):
    """The run waits for a person's decision: `outlast show ID`, then `outlast resume ID`."""

    _ended = "is parked"


class RunDead(RunError):
    """The run is a dead letter: `outlast show ID`, then `outlast retry ID`."""

    _ended = "is a dead letter"


class StoreError(OutlastError):
    """The store could not complete an operation. The subclass says whether a retry may help."""


class StoreUnavailable(StoreError):
    """The store cannot be written or read now.

    What it acknowledged is safe, and runs are resumable.
    """


class StoreBroken(StoreError):
    """The store is corrupt, or not an Outlast store.

    With `gone`, its file was removed or replaced while it was open, and only a restart helps.
    """

    def __init__(self, message: str = "", *, gone: bool = False) -> None:
        super().__init__(message)
        self.gone = gone


class StoreTooNew(StoreError):
    """The store was written by a newer Outlast."""


class Evicted(Explained, BaseException):
    """This execution of the run is over, for `reason`. The run continues elsewhere, or later.

    Every later Outlast call of this execution raises it again, and nothing more is recorded.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Diverged(Explained, BaseException):
    """The code asked for something other than what the journal recorded.

    Nothing was executed, and the run is parked.
    """

    def __init__(
        self, recorded: str, asked: str, *, run: str | None = None, line: str | None = None
    ) -> None:
        self.recorded = recorded
        self.asked = asked
        self.run = run
        """The id of the run."""
        self.line = line
        """The line of the workflow's code that asked, as file:line, if known."""
        super().__init__(recorded, asked)

    def __str__(self) -> str:
        return (
            f"{stopped(f'{DIVERGED}{self.recorded}, the code asked for {self.asked}')} "
            "The workflow has changed, or its code is not deterministic (a clock, a random "
            "number, the order of a set). Restore the old code or fix the new one, then run "
            f"`outlast resume {'ID' if self.run is None else quote(self.run)}`."
        )
