"""Define what a program says and sees of schedules: `Schedule` and `ScheduleInfo`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict

from outlast.api.definition_checks import check_options
from outlast.codec.identifiers import check_id, check_queue_name
from outlast.engine.inspection import moment
from outlast.engine.schedule_rows import Definition, Overlap, ScheduleRow
from outlast.engine.schedule_timing import Timing
from outlast.engine.submission import PRIORITY_MAX
from outlast.errors import SettingsError
from outlast.execution.definitions import WorkflowCall
from outlast.settings import Settings

OverlapPolicy = Literal["skip", "queue", "cancel", "allow"]
CatchUp = Literal["none", "last"] | int
CATCH_UP_MAX = 1_000


class ScheduleOptions(TypedDict, total=False):
    """The options of `app.schedule`. `Schedule` describes each of them."""

    cron: str | None
    every: float | timedelta | None
    tz: str
    overlap: OverlapPolicy
    catch_up: CatchUp
    jitter: float
    queue: str
    priority: int
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When workers run a workflow: `@workflow(schedule=Schedule(cron="0 2 * * *"))`.

    `app.schedule` takes the same options. A wrong option raises SettingsError at once.
    """

    cron: str | None = None
    """Five fields, as in cron: minute, hour, day of the month, month and day of the week."""
    every: float | timedelta | None = None
    """Seconds between two runs, instead of `cron`."""
    tz: str = "UTC"
    """The time zone of `cron`, such as "Europe/Berlin"."""
    overlap: OverlapPolicy = "skip"
    """What happens when a run is due and the one before has not ended: "skip" starts none, "queue"
    starts it afterwards, "cancel" cancels the one before and starts it then, and "allow" starts it
    at once.
    """
    catch_up: CatchUp = "last"
    """What happens to times that no worker was there for: "none" starts no run for them, "last"
    starts one for the newest, and a number starts that many.
    """
    jitter: float = 0.0
    """Start each run up to this many seconds later."""
    queue: str = "default"
    priority: int = 0
    key: str | None = None
    """The key of each run: see `Outlast.submit`."""

    def __post_init__(self) -> None:
        self.timing.check()
        if self.overlap not in list(Overlap):
            known = ", ".join(f'"{policy}"' for policy in Overlap)
            raise SettingsError(f"overlap={self.overlap!r} must be one of {known}.")
        if self.catch_up not in ("none", "last") and (
            type(self.catch_up) is not int or not 1 <= self.catch_up <= CATCH_UP_MAX
        ):
            raise SettingsError(
                f'catch_up={self.catch_up!r} must be "none", "last", or a number of firings from '
                f"1 to {CATCH_UP_MAX:,}."
            )
        check_options("schedule", self.cron or "", jitter=self.jitter)
        if type(self.priority) is not int or abs(self.priority) > PRIORITY_MAX:
            raise SettingsError(
                f"priority={self.priority!r} must be a whole number within ±{PRIORITY_MAX:,}."
            )

    @property
    def timing(self) -> Timing:
        every = self.every
        seconds = every.total_seconds() if isinstance(every, timedelta) else every
        return Timing(self.cron, seconds, self.tz)

    @property
    def _catch_up_count(self) -> int:
        if isinstance(self.catch_up, int):
            return self.catch_up
        return 1 if self.catch_up == "last" else 0

    def define(self, call: WorkflowCall, settings: Settings) -> Definition:
        """Return what the store keeps of this schedule of a call."""
        check_queue_name(self.queue, settings.name_length_max)
        if self.key is not None:
            check_id(self.key, settings.id_length_max, "key")
        timing, workflow = self.timing, call.workflow
        return Definition(
            workflow=workflow.name,
            args=call.args,
            cron=timing.cron,
            every=timing.every,
            tz=timing.tz,
            overlap=Overlap(self.overlap),
            catch_up=self._catch_up_count,
            jitter=self.jitter,
            queue=self.queue,
            priority=self.priority,
            key=self.key,
            timeout=workflow.timeout,
            abandon_after=workflow.abandon_after,
        )


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A snapshot of a schedule in the store. It is not kept up to date."""

    name: str
    workflow: str
    arguments: str
    """As JSON."""
    cron: str | None
    every: float | None
    tz: str
    overlap: str
    catch_up: int
    """How many missed firings start a run later."""
    jitter: float
    queue: str
    priority: int
    key: str | None
    paused: bool
    next: datetime | None
    """When it fires next. None if it is paused."""
    last: datetime | None
    """The time of the last firing that started a run."""
    last_run: str | None
    """The id of that run."""
    waiting: int
    """How many firings wait until the run before them has ended."""
    skipped: int
    """How many firings started no run, because the one before had not ended."""
    by: str | None
    """Who set, paused or resumed it last, if that is known."""

    @classmethod
    def of(cls, row: ScheduleRow) -> ScheduleInfo:
        definition, state = row.definition, row.state
        due = row.next()
        return cls(
            name=row.name,
            workflow=definition.workflow,
            arguments=definition.args,
            cron=definition.cron,
            every=definition.every,
            tz=definition.tz,
            overlap=definition.overlap.value,
            catch_up=definition.catch_up,
            jitter=definition.jitter,
            queue=definition.queue,
            priority=definition.priority,
            key=definition.key,
            paused=state.paused,
            next=None if due is None else moment(due),
            last=None if state.last is None else moment(state.last.at),
            last_run=None if state.last is None else state.last.id,
            waiting=len(state.waiting),
            skipped=state.skipped,
            by=state.by,
        )


def scheduled_time(run_id: str) -> datetime | None:
    """Return the time in the id of a schedule's run, or None if there is none."""
    _, mark, text = run_id.rpartition("@")
    if not mark or not text.endswith("Z"):
        return None
    try:
        return datetime.fromisoformat(text[:-1]).replace(tzinfo=UTC)
    except ValueError:
        return None
