"""Describe the answers, for the OpenAPI document. Answers may have more fields than these."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Document(BaseModel):
    """The base of all answers. Later versions may add fields and never rename one."""

    model_config = ConfigDict(extra="allow")


class ProblemDocument(Document):
    """An error, as RFC 9457 defines it."""

    type: str
    title: str
    status: int
    detail: str
    error: str | None = Field(description="A name that `outlast explain` knows.")
    next: str = Field(description="What to do.")


class ErrorDocument(Document):
    type: str
    message: Any = None
    traceback: Any = None


class RunDocument(Document):
    id: str
    workflow: str
    item: bool
    status: str
    delayed: bool
    queue: str
    priority: int
    created: str | None
    started: str | None
    ended: str | None
    due: str | None
    worker: str | None
    fence: int
    deaths: int
    interruptions: int
    failures: int
    parent: str | None
    by: str | None = Field(description="Who submitted it.")
    key: str | None = Field(description="Whose limits it counts against.")
    waiting_for: list[str]
    cancelling: str | None
    reason: str | None
    error: ErrorDocument | None
    explain: str | None
    undoing: dict[str, Any] | None


class WholeRunDocument(RunDocument):
    args: Any
    result: Any
    deadline: str | None
    failed_at: int | None
    deaths_in_a_row: int
    attempts_max: int
    suspect: bool = Field(description="Whether it executes in isolation.")


class RunsPage(Document):
    runs: list[dict[str, Any]]
    now: str
    next: str | None = Field(description="Pass it as `cursor` for the next page.")


class WaitsAnswer(Document):
    run: str
    waits: list[dict[str, Any]] = Field(description="`name` and `schema`, which may be null.")


class AttentionList(Document):
    """Runs of one kind, newest first, each with `since` and the number of `undecided` effects."""

    runs: list[dict[str, Any]]
    more: bool


class AttentionAnswer(Document):
    now: str
    parked: AttentionList
    stuck: AttentionList = Field(description="Parked while they were compensated.")
    dead: AttentionList
    answers: AttentionList = Field(description="They wait for a message.")
    last_hour: dict[str, Any] = Field(description="How the latest runs ended, from `since` on.")


class EntryDocument(Document):
    seq: int
    kind: str
    key: str
    at: str | None
    args: Any
    value: Any
    error: ErrorDocument | None
    seconds: float | None
    attempt: int | None
    asked: bool | None = Field(description="Whether the step had been asked to stop.")
    cost: dict[str, Any] | None
    fence: int
    void: bool


class JournalAnswer(Document):
    entries: list[EntryDocument]
    next: int | None = Field(description="Pass it as `after` for the next page.")


class EffectsAnswer(Document):
    effects: list[dict[str, Any]]
    undecided: list[str]
    questions: dict[str, str] = Field(
        description="What the run asks about budgets, by the ids of the budgets."
    )


class WholeRunAnswer(Document):
    run: WholeRunDocument
    cost: dict[str, Any] | None = None
    effects: list[dict[str, Any]] | None = None
    undecided: list[str] = []
    questions: dict[str, str] = Field(
        default={}, description="What the run asks about budgets, by the ids of the budgets."
    )
    executions: list[dict[str, Any]] = []
    journal: list[EntryDocument] = []
    messages: list[dict[str, Any]] = []


class TimelineRow(EntryDocument):
    started: str | None = Field(description="When this attempt began.")
    worker: str | None = Field(description="Who recorded it. Null for an entry of the store.")
    by: str | None = Field(description="Who retried, resumed or decided.")
    words: Any = Field(description="What `outlast show` prints of it.")


class TimelineAnswer(WholeRunAnswer):
    now: str
    rows: list[TimelineRow]
    next: int | None = Field(description="Pass it as `after` for the next page.")
    holder: dict[str, Any] | None = Field(description="The worker that holds the run.")
    has_worker: bool = Field(description="Whether a live worker takes the run once it is ready.")
    executing: list[dict[str, Any]] = Field(
        description="Steps that have been executing for longer than a second."
    )
    incidents: list[dict[str, Any]]
    waits: list[dict[str, Any]]
    children: list[dict[str, Any]]
    progress: list[dict[str, Any]] = Field(description="What unfinished steps have saved.")


class ResultDocument(Document):
    id: str
    workflow: str
    status: str
    result: Any
    error: ErrorDocument | None
    recorded: Any = Field(description="The error as recorded, for a client that rebuilds it.")
    reason: str | None
    explain: str | None


class SubmittedRun(Document):
    run: RunDocument
    new: bool = Field(description="Whether this request submitted it.")


class SubmittedRuns(Document):
    runs: list[SubmittedRun]


class RunAnswer(Document):
    run: RunDocument


class MessageAnswer(Document):
    id: str
    name: str
    message_id: str


class StreamsAnswer(Document):
    streams: list[dict[str, Any]]


class QueuesAnswer(Document):
    queues: list[dict[str, Any]]


class LimitersAnswer(Document):
    limiters: list[dict[str, Any]]
    damaged: list[str]


class BudgetsAnswer(Document):
    budgets: list[dict[str, Any]]
    damaged: list[str]
    next: str | None = Field(description="Pass it as `after` for the next page.")


class BudgetAnswer(Document):
    budget: dict[str, Any]


class PausedWorkflowsAnswer(Document):
    workflows: list[dict[str, Any]]


class WorkflowPauseAnswer(Document):
    workflow: str
    paused: bool


class LimitsAnswer(Document):
    queue: str
    depth: int | None
    concurrency: int | None
    per_key_concurrency: int | None
    per_key_rate: str | None
    paused: bool


class QueueAnswer(LimitsAnswer):
    size: int = Field(description="How many runs and items workers could take now.")


class ItemsPage(Document):
    items: list[dict[str, Any]]
    next: str | None = Field(description="Pass it as `cursor` for the next page.")


class PutAnswer(Document):
    queue: str
    ids: list[str] = Field(description="The items' own ids, in order.")


class ScheduleDocument(Document):
    name: str
    workflow: str
    args: Any
    cron: str | None
    every: float | None
    tz: str
    overlap: str
    catch_up: int
    jitter: float
    queue: str
    priority: int
    key: str | None
    paused: bool
    next: str | None = Field(description="When it fires next. Null: it is paused.")
    last: str | None
    last_run: str | None
    waiting: int
    skipped: int
    by: str | None = Field(description="Who set, paused or resumed it last.")
    upcoming: list[str] = Field(description="The next times from now on.")


class ScheduleAnswer(Document):
    schedule: ScheduleDocument


class SchedulesAnswer(Document):
    schedules: list[ScheduleDocument]
    damaged: list[str] = Field(description="What is wrong with each schedule that is unreadable.")


class TriggerAnswer(Document):
    run: str


class BackfillAnswer(Document):
    runs: list[str]


class DeletedSchedule(Document):
    deleted: str


class WorkersAnswer(Document):
    workers: list[dict[str, Any]]
    deregistered: list[str]
    stalls: list[dict[str, Any]]


class DrainAnswer(Document):
    worker: str
    state: str = Field(description="asked, or draining since before.")


class DrainsAnswer(Document):
    drains: list[dict[str, Any]]


class SessionsPage(Document):
    sessions: list[dict[str, Any]]
    next: str | None


class SessionAnswer(Document):
    session: dict[str, Any]


class SessionValues(Document):
    values: Any = Field(description="All fields and lists, by name.")


class SessionFields(Document):
    fields: dict[str, Any]


class FieldAnswer(Document):
    found: bool
    value: Any


class ItemsAnswer(Document):
    items: list[Any]


class UpdateAnswer(Document):
    version: int = Field(description="The version of the session after the change.")
    made: bool = Field(description="False: all fields of `if_absent` had a value.")


class ReplaceAnswer(Document):
    version: int


class ClearAnswer(Document):
    cleared: str


class TakeAnswer(Document):
    owner: int = Field(description="The number to write with. It grows with each take.")


class TouchAnswer(Document):
    touched: bool = Field(description="Whether there is such a session.")


class UpdatesAnswer(Document):
    versions: list[int] = Field(description="Of each session after its change, in order.")


class DeletedSession(Document):
    deleted: dict[str, Any]


class PruneAnswer(Document):
    deleted: int
    more: bool = Field(description="Whether the time was up before all were deleted.")


class MeAnswer(Document):
    name: str
    role: str
    now: str = Field(description="The store's time.")


class WorkflowsAnswer(Document):
    workflows: list[dict[str, Any]]
