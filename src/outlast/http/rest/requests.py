"""Define what requests must look like. Unknown fields and parameters are refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat
from starlette.exceptions import HTTPException

from outlast.codec.identifiers import check_id
from outlast.engine.submission import PRIORITY_MAX
from outlast.errors import OutlastError
from outlast.http.rest.encoded_paths import decoded
from outlast.store.commands import DRAINS_MAX

WAIT_SECONDS_MAX = 60.0
"""How long a request may wait. A proxy cuts longer ones."""
LENGTH_MAX = 10_000
AGE_SECONDS_MAX = 1e10
NUMBER_MAX = 2**53
"""The largest number that every JSON reader can read."""
RUNS_MAX = 1_000
ENTRIES_MAX = 1_000
DEPTH_MAX = 1_000_000_000
UPCOMING_MAX = 100
FIRST_YEAR, LAST_YEAR = 1971, 9998

StatusName = Literal[
    "queued", "delayed", "running", "waiting", "parked", "done", "failed", "cancelled", "dead"
]


def _printable(text: str) -> str:
    try:
        return check_id(text, LENGTH_MAX, "it")
    except OutlastError as error:
        raise ValueError(str(error)) from None


def storable(text: str) -> str:
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("it has a character that cannot be stored")
    return text


def _moment(text: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError("it is not a time: write 2026-11-01T00:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError("it needs an offset, such as Z or +01:00")
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"its year must be from {FIRST_YEAR} to {LAST_YEAR}")
    return moment


def _segment(text: str) -> str:
    return _printable(decoded(text))


Name = Annotated[str, Field(min_length=1, max_length=LENGTH_MAX), AfterValidator(_printable)]
Reason = Annotated[str, Field(max_length=LENGTH_MAX), AfterValidator(storable)]
Segment = Annotated[str, AfterValidator(_segment)]
"""A part of the path. Any printable text, percent-encoded."""
Seconds = Annotated[FiniteFloat, Field(ge=0, le=AGE_SECONDS_MAX)]
Wait = Annotated[FiniteFloat, Field(ge=0, le=WAIT_SECONDS_MAX)]
Number = Annotated[int, Field(ge=0, le=NUMBER_MAX)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
"""A time with an offset."""


Limits = Annotated[dict[Name, FiniteFloat], Field(min_length=1, max_length=10)]


class Parameters(BaseModel):
    """Parameters of a request."""

    model_config = ConfigDict(extra="forbid")


class Body(BaseModel):
    """The body of a request. Numbers and text are not converted into each other."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Nothing(Parameters):
    """A request without parameters."""


class RunFilter(Parameters):
    """Which runs to list."""

    status: list[StatusName] = Field(default=[], max_length=20)
    workflow: Name | None = None
    queue: Name | None = None
    prefix: Name | None = Field(default=None, description="What the id starts with.")
    parent: Name | None = None
    key: Name | None = Field(default=None, description="Whose limits they count against.")
    waiting_for: Name | None = Field(default=None, description="A message that the run waits for.")
    worker: Name | None = Field(default=None, description="The worker that holds the run.")
    awaits_message: bool | None = Field(default=None, description="Runs that wait for a message.")
    items: Literal["no", "only", "all"] = Field(default="no", description="Plain work items.")
    undoing: bool | None = Field(default=None, description="Runs that are being compensated.")
    older_than: Seconds | None = Field(default=None, description="Created that many seconds ago.")
    newer_than: Seconds | None = None
    limit: int = Field(default=100, ge=1, le=RUNS_MAX)
    before: Name | None = Field(default=None, description="The id of a run: only older ones.")
    cursor: Number | None = Field(default=None, description="`next` of the page before.")


class AttentionFilter(Parameters):
    limit: int = Field(default=15, ge=1, le=100, description="The most runs of each list.")


class RunView(Parameters):
    """How much of a run to show."""

    brief: bool = Field(default=False, description="Leave out the journal and what is read of it.")


class JournalPage(Parameters):
    after: Number = Field(default=0, description="`next` of the page before.")
    limit: int = Field(default=ENTRIES_MAX, ge=1, le=ENTRIES_MAX)


class ResultWait(Parameters):
    wait: Wait = Field(default=0.0, description="Seconds to wait for the end.")


class WatchFrom(Parameters):
    after: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="The cursor of the last event. The header Last-Event-ID wins."
    )


class WorkflowCallBody(Body):
    """A call of a workflow by its name."""

    workflow: Name
    args: list[Any] = Field(default=[], description="Arguments by position.")
    kwargs: dict[str, Any] = Field(default={}, description="Arguments by name.")


class RunToSubmit(WorkflowCallBody):
    id: Name | None = Field(
        default=None,
        description="The run's id. By default made of the header Idempotency-Key, or a new one.",
    )
    key: Name | None = Field(default=None, description="Whose limits it counts against.")


class HowToQueue(Body):
    """Where and how work is queued."""

    priority: int = Field(default=0, ge=-PRIORITY_MAX, le=PRIORITY_MAX)
    delay: Seconds = Field(default=0.0, description="Seconds until workers may claim it.")
    wait: Wait = Field(default=0.0, description="Seconds to wait for room in a full queue.")


class HowToSubmit(HowToQueue):
    queue: Name = "default"
    on_conflict: Literal["raise", "join"] = "raise"


class Submission(RunToSubmit, HowToSubmit):
    """A run to submit. See `Outlast.submit` for `debounce` and `window`."""

    debounce: Seconds | None = Field(
        default=None, description="The last run of a burst is executed, this many seconds after it."
    )
    debounce_max: Seconds | None = Field(
        default=None, description="Seconds after which a burst runs at the latest."
    )
    window: Seconds | None = Field(
        default=None, description="One run is accepted in this many seconds."
    )
    on_repeat: Literal["reject", "join", "replace"] | None = Field(
        default=None, description="What another run in the window does. By default rejected."
    )


class ManySubmissions(HowToSubmit):
    """Runs to submit in one commit, all or none."""

    runs: list[RunToSubmit]


class NewItem(Body):
    payload: Any
    id: Name | None = Field(
        default=None,
        description="The item's own id. By default made of the header Idempotency-Key, or a new "
        "one.",
    )
    key: Name | None = Field(default=None, description="Whose limits it counts against.")


class NewItems(HowToQueue):
    """Items to put into a queue in one commit, all or none."""

    items: list[NewItem]


class ItemFilter(Parameters):
    """Which items of a queue to list."""

    status: list[StatusName] = Field(default=[], max_length=20)
    limit: int = Field(default=100, ge=1, le=RUNS_MAX)
    cursor: Number | None = Field(default=None, description="`next` of the page before.")


class NewMessage(Body):
    name: Name
    value: Any = None
    id: Name | None = Field(
        default=None,
        description="A message with this name and id is sent once. By default the header "
        "Idempotency-Key, or a new one.",
    )


class CancelRequest(Body):
    why: Reason = "cancelled over HTTP"


class BudgetLimits(Body):
    """The limits of a budget."""

    limits: Limits


class BudgetsPage(Parameters):
    """Which budgets to list."""

    prefix: Annotated[str, Field(max_length=10_000), AfterValidator(storable)] = ""
    after: Name | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class Decision(Body):
    """What became of an effect, or the new limit of a budget.

    Give `happened`, `limit` or one of the two flags.
    """

    effect: Name
    happened: Any = Field(default=None, description="The result, if the effect happened.")
    did_not: bool = False
    compensate: bool = False
    result: Any = Field(default=None, description="With `compensate`: the result to compensate.")
    intent: Number | None = None
    limit: Limits | None = Field(
        default=None, description="The new limits, if `effect` is budget:NAME."
    )


class QueueLimits(Body):
    """The limits of a queue. A limit that is left out stays, and null removes it."""

    depth: Annotated[int, Field(ge=1, le=DEPTH_MAX)] | None = None
    concurrency: Annotated[int, Field(ge=0, le=DEPTH_MAX)] | None = None
    per_key_concurrency: Annotated[int, Field(ge=1, le=DEPTH_MAX)] | None = None
    per_key_rate: Annotated[str, Field(max_length=40)] | None = Field(
        default=None, description="How many runs of a key may start per period, such as 100/1m."
    )
    paused: bool | None = None


class ScheduleBody(WorkflowCallBody):
    """What a schedule starts, and when: give `cron` or `every`."""

    cron: Annotated[str, Field(max_length=1_000), AfterValidator(storable)] | None = Field(
        default=None, description="Five fields: minute, hour, day, month, day of the week."
    )
    every: Seconds | None = Field(default=None, description="Seconds between two runs.")
    tz: Annotated[str, Field(max_length=100), AfterValidator(storable)] = Field(
        default="UTC", description="The time zone of `cron`."
    )
    overlap: Literal["skip", "queue", "cancel", "allow"] = "skip"
    catch_up: Literal["none", "last"] | Number = "last"
    jitter: Seconds = 0.0
    queue: Name = "default"
    priority: int = Field(default=0, ge=-PRIORITY_MAX, le=PRIORITY_MAX)
    key: Name | None = Field(default=None, description="Whose limits its runs count against.")


class Backfill(Body):
    """Which times of a schedule to submit: from `start` up to but not including `end`."""

    start: Moment
    end: Moment


class ScheduleView(Parameters):
    upcoming: int = Field(default=0, ge=0, le=UPCOMING_MAX, description="How many next times.")


class DrainRequest(Body):
    why: Reason = "asked over HTTP"


class PruneRequest(Body):
    older_than: Seconds
    dead: bool = False


class DrainsPage(Parameters):
    limit: int = Field(default=20, ge=1, le=DRAINS_MAX)


def key_of(given: str | None) -> str | None:
    """Return the header Idempotency-Key. Raise HTTPException 400 for one that is no text."""
    if given is None:
        return None
    try:
        return _printable(given)
    except ValueError as error:
        raise HTTPException(400, f"Idempotency-Key: {error}") from None


def ids_of(given: Sequence[str | None], key: str | None) -> list[str | None]:
    """Return the ids of several things. Those without one get an id made of the key, if any."""
    if key is None:
        return list(given)
    return [id or f"{key}-{number}" for number, id in enumerate(given, 1)]
