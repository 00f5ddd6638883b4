"""The house: everything one process needs to execute runs. `Outlast` is its public face.

It owns the store, the writer, the lease and the lives; it starts runs, takes over those whose worker died, claims from queues if it
is a worker, and listens for what others want of its own.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import Context
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.app.adoption import Adoption
from outlast.app.changes import Changes
from outlast.app.claimer import Claimer
from outlast.app.hooks import Hook, Hooks
from outlast.app.intake import Intake
from outlast.app.patience import patiently
from outlast.app.post import Post
from outlast.app.resting import Resting
from outlast.app.room import Room
from outlast.app.stalls import Stalls
from outlast.app.submission import OnConflict, check_joins
from outlast.app.sweeper import Sweeper
from outlast.app.worker import Worker
from outlast.drain.drain import Drain
from outlast.drain.forecast import Durations
from outlast.drain.occupied import Occupation, Occupied
from outlast.errors import (
    Draining,
    DuplicateName,
    Evicted,
    LimitExceeded,
    StoreError,
    StoreUnavailable,
)
from outlast.record.writer import InlineWriter, Writer
from outlast.replay import requests
from outlast.replay.ending import End, lost
from outlast.replay.life import Life
from outlast.replay.threads import Pool
from outlast.replay.unit import Units
from outlast.settings import Settings
from outlast.settings.masks import secrets_of
from outlast.store.deadline import until
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, RunQuery, RunRow
from outlast.store.verbs import (
    DRAINING,
    Cancel,
    Refused,
    Renew,
    Submit,
    Submitted,
)
from outlast.telemetry.logs import hide
from outlast.telemetry.meters import meters_of
from outlast.telemetry.names import STATUSES
from outlast.telemetry.spans import Spans
from outlast.telemetry.values import told, told_of, veiled
from outlast.values.cost import NOTHING, Cost
from outlast.values.exceptions import encode_error

if TYPE_CHECKING:
    from outlast.app.items import Consumer
    from outlast.define.workflow import Call, Workflow
    from outlast.replay.loop import RunLoop
    from outlast.telemetry.looks import Looks

log = logging.getLogger("outlast")
PATIENCE_MIN = 0.05
AFTER_STORE_SECONDS = 0.5
"""Of a drain's grace, for what comes after the store was left."""
T = TypeVar("T")


class House:
    def __init__(
        self,
        store: Store,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        *,
        inline: bool = False,
        hooks: Mapping[str, Hook] | None = None,
    ) -> None:
        self.store, self.settings, self.loop, self.inline = store, settings, loop, inline
        kind = InlineWriter if inline else Writer
        self.thread = threading.get_ident()
        """The loop's."""
        self.writer = kind(
            store, loop, patience=settings.store_patience, batch_max=settings.batch_size_max, metered=bool(settings.metrics),
            log_values=settings.log_values,
        )  # fmt: skip
        self.meters, self.spans = meters_of(settings), Spans()
        self.log_values = settings.log_values
        """How many characters of a value may be logged."""
        self.pool = Pool()
        self.say: Callable[[str], None] = log.warning
        """To whoever waits for this process to begin."""
        self.lives: dict[str, Life] = {}
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.graveyard: list[RunLoop] = []
        self.hung: set[str] = set()
        """Runs that could not be given back, because a step of theirs still executes."""
        self.stand_ins: dict[Any, Callable[..., Any]] = {}
        """For tests: what to execute instead of a step's function."""
        self.observe: Callable[[str, str], None] | None = None
        """For tests: told the run and the key of every body that starts."""
        self.worker = Worker(store, self.writer, settings, inline=inline)
        self.worker.lost, self.stalls = self._lost, Stalls(self)
        self.room = Room(self.wake_claimers)
        self.adoption = Adoption(self)
        self.sweeper = Sweeper(self)
        self.claimer: Claimer | None = None
        """Claims runs from queues, if this process is a worker."""
        self.consumers: set[Consumer] = set()
        self.hooks = Hooks(self, hooks or {})
        self.intake, self.post, self.resting = Intake(self), Post(self), Resting(self)
        self._sweeping = False
        self.draining = self.closing = self.stays = False
        self.left_by: int | None = None
        """In a sync program: the thread that leaves it."""
        self.leaver: asyncio.Task[Any] | None = None
        """The task that leaves it."""
        self.working = False
        """It has been opened."""
        self.unhealthy: str | None = None
        """Why this process is not ready, if its program says so."""
        self.durations, self.units = Durations(), Units()
        self.saved: Cost = NOTHING
        """What was not spent again, because this process took up runs that had died or been interrupted."""
        self.drain = Drain(self)
        self.occupied = Occupied(self._left)
        self.closed_soon: asyncio.Future[None] = loop.create_future()
        """Done when the house begins to close."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self.changes = Changes(loop, self._ring)

    @cached_property
    def looks(self) -> Looks:
        """At the store, for those who ask for numbers."""
        from outlast.telemetry.looks import Looks

        return Looks(self, self.settings.metrics_series_max // len(STATUSES))

    # -- opening and closing

    async def open(self) -> None:
        hide(*secrets_of(self.settings))
        self.store.call_timeout = self.settings.call_timeout
        opening = self.keep(self.loop.create_task(self._open_store()), quiet=True)
        try:
            await asyncio.shield(opening)
        except BaseException:
            self.closing = True
            opening.add_done_callback(lambda _: self._never_opened())
            raise
        self.writer.start()
        try:
            await self.worker.enlist()
        except BaseException:
            self.writer.close()
            self._never_opened()
            raise
        if not self.inline:
            self.changes.look_every(self.settings.poll)
            self.stalls.start()

    async def _open_store(self) -> None:
        """Open the store and listen to it. Wait as long as a write would if it is unavailable."""
        patience = self.settings.store_patience
        deadline = time.monotonic() + patience
        for action in (self.store.open, partial(self.store.listen, self.changes.ring)):
            await patiently(
                partial(self.in_thread, _until, deadline, action),
                patience,
                until=lambda: self.inline or self.closing,
                say=self.say,
            )

    async def close(self, why: str) -> None:
        """Evict every life, and give back what has stopped. After a drain there is little left to do.

        A run whose step still executes (a thread that hangs) is kept: its lock is held and its lease renewed until this
        process is gone.
        """
        self.closing = self.draining = self.room.draining = True
        if not self.closed_soon.done():
            self.closed_soon.set_result(None)
        self.changes.stop()
        self.stalls.stop()
        self.stop_claiming()
        if self.room.hands and self.drain.layer is None:
            # Should it be killed meanwhile: they were interrupted, not at fault.
            draining = Renew(self.worker.id, self.settings.lease, draining=True)
            self.writer.put(draining, lambda *_: None)
        for life in list(self.lives.values()):
            life.evict(Evicted(why))
        ends: list[asyncio.Future[Any]] = [life.end for life in self.lives.values()]
        if ends:
            await asyncio.wait(ends, timeout=self.patience() * 2)
        await self._close_consumers()
        await self.hooks.close(self.patience())
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self.patience())
        batches = [one for one in self.occupied if one.kind in ("each", "map")]
        self.hung |= {one.name for one in batches if one.goes_on(self.left_by, self.leaver)}

    async def _close_consumers(self) -> None:
        """All of them in the time of one."""
        until, consumers = self.loop.time() + self.patience(), list(self.consumers)
        for consumer in consumers:
            consumer.stop_all()
        for consumer in consumers:
            self.hung |= await consumer.close(max(0.0, until - self.loop.time()))

    def patience(self) -> float:
        """Seconds that closing waits for something that does not end. What a drain has waited for has had its time."""
        return min(self.settings.close_timeout, max(PATIENCE_MIN, self.drain.seconds_before_exit))

    def stop_claiming(self) -> None:
        """Take nothing more."""
        if self.claimer is not None:
            self.claimer.stop()
        for consumer in list(self.consumers):
            consumer.stop()

    def afterwards(self, work: Coroutine[Any, Any, None]) -> None:
        """What goes on when the house has closed, if the program does."""
        task = self.loop.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late_done)

    def _late_done(self, task: asyncio.Task[None]) -> None:
        self._late.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            why = told(error, self.log_values)
            log.warning("what executed on after the close could not be given back: %s", why)

    def hangs_no_more(self, id: str) -> None:
        """Something that hung has ended. A worker that stayed for such things is struck off after the last of them."""
        self.hung.discard(id)
        if self.stays and not self.hung:
            self.stays = False
            self.afterwards(self.leave())

    def _left(self, occupation: Occupation) -> None:
        """From any thread."""
        self.drain.changed(occupation)
        if occupation.kind == "each" and occupation.name in self.hung:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self.hangs_no_more, occupation.name)

    async def leave(self) -> None:
        """Strike this worker off, and let go of the store; in a drain in the time that is left."""
        self.stays = bool(self.hung)  # then it is left when nothing hangs any more
        if self.stays:
            self.worker.stay()
            log.warning("still executing, so not given back: %s", ", ".join(sorted(self.hung)))
            return
        within = None
        if self.drain.layer is not None:
            # A process of ours is ended by its deadline; another's may be past its drain.
            within = max(
                AFTER_STORE_SECONDS, self.drain.left - min(AFTER_STORE_SECONDS, self.drain.grace / 8)
            )
        try:
            async with asyncio.timeout(within):
                try:
                    await self.worker.leave()
                except StoreError as error:
                    log.warning("could not strike this worker off: %s", error)
                    if within is not None:
                        return  # the process ends with its lock in hand
                await self.in_thread(self._shut)
        except TimeoutError:
            log.warning(
                "the store did not answer: worker %s is not struck off, it will be swept", self.worker.id
            )
        finally:
            self.pool.close()

    def _never_opened(self) -> None:
        self.store.close()
        self.pool.close()

    def _shut(self) -> None:
        self.writer.close()
        self.store.close()

    # -- claiming from queues

    def claim_from(self, queues: tuple[str, ...], concurrency: int) -> None:
        """Be a worker: execute what others submit."""
        self.claimer = Claimer(
            self, queues, lambda: tuple(self.workflows), concurrency, self.intake.begin_claimed
        )
        self.keep(self.loop.create_task(self.claimer.work()))
        self.meters.begin(queues)
        self.sweep_too()
        self.resting.watch()

    def sweep_too(self) -> None:
        """Whoever claims also looks after the dead."""
        if not self._sweeping:
            self._sweeping = True
            self.keep(self.loop.create_task(self.sweeper.work()))

    @property
    def hears_requests(self) -> bool:
        """Whether it drains when somebody asks for it through the store: a worker, and who takes items."""
        return self._sweeping and not self.draining

    def wake_claimers(self) -> None:
        if self.claimer is not None:
            self.claimer.wake()
        for consumer in self.consumers:
            consumer.claimer.wake()

    # -- starting runs

    def know(self, workflow: Workflow[..., Any]) -> None:
        """Two workflows with one name are an error: a run could not tell which is its own."""
        known = self.workflows.setdefault(workflow.name, workflow)
        if known is not workflow and known.fn is not workflow.fn:
            same = (known.fn.__module__, known.fn.__qualname__) == (
                workflow.fn.__module__,
                workflow.fn.__qualname__,
            )
            if not same:
                raise DuplicateName(
                    f"two workflows have the name {workflow.name!r}: {known.fn.__module__}.{known.fn.__qualname__} and "
                    f"{workflow.fn.__module__}.{workflow.fn.__qualname__}. Name one: @workflow(name=...)."
                )
            self.workflows[workflow.name] = workflow

    def submission(self, call: Call[Any], id: str, **fields: Any) -> Submit:
        if not hasattr(call, "workflow"):
            raise TypeError(f"it takes a call of a workflow, like submit(report('tides')), not {call!r}.")
        self.know(call.workflow)
        self.check_size(call.args, f"the arguments of {call.workflow.name}")
        call.workflow.signature.returns()
        workflow = call.workflow
        limits = {"timeout": workflow.timeout, "abandon_after": workflow.abandon_after}
        return self.new(id, workflow.name, call.args, **limits, **fields)

    def new(self, id: str, workflow: str, args: str, **fields: Any) -> Submit:
        chance = secrets.token_hex(24)  # asked for once: it is a system call, and not a cheap one
        settings = self.settings
        return Submit(
            id=id,
            workflow=workflow,
            args=args,
            token=chance[:16],
            seed=chance[16:],
            attempts_max=settings.max_attempts,
            interruptions_max=settings.interruptions_max,
            depth_max=settings.queue_depth_max,
            **fields,
        )

    async def start(
        self,
        call: Call[Any],
        id: str,
        parent: RunRow | None = None,
        on_conflict: OnConflict = "raise",
    ) -> RunRow:
        """Have a run executed here: new, or taken over, or joined where it is under way. Conflict for other work.

        Who asked may be cancelled meanwhile; what was submitted is begun all the same, so that no run is left behind.
        """
        verb = self.submission(call, id)
        if self.draining:
            raise Draining(
                f"this process is on its way out: run {id!r} is not started. Submit it, or start it elsewhere."
            )
        if parent is not None:  # it goes where its parent goes
            verb = verb._replace(parent=parent.id, queue=parent.queue, priority=parent.priority)
        await self._while_a_suspect_is_alone(verb.parent)
        with self.spans.starting("start", verb.workflow) as link:
            row = await asyncio.shield(
                self.keep(self.loop.create_task(self._start(call, verb, on_conflict)), quiet=True)
            )
            link([row.seed])
        return row

    async def _start(self, call: Call[Any], verb: Submit, on_conflict: OnConflict) -> RunRow:
        outcome: Submitted | Refused
        for _ in range(3):
            worker = self.worker.id
            outcome = await self.intake.acquire(verb._replace(worker=worker))
            if not isinstance(outcome, Refused):
                break
            if self.draining or outcome.why == DRAINING:
                raise Draining(f"this process is on its way out: run {verb.id!r} is not started.")
            await self.worker.enlist(instead_of=worker)  # it was taken for dead since
        else:
            raise StoreUnavailable(
                "the store takes this worker for dead again and again: is its clock right?"
            )
        row = outcome.row
        assert row is not None, "a run with a worker is returned"
        if outcome.new:
            self.intake.begin(row, call.workflow)
        else:
            check_joins(row, call, on_conflict)
            if row.status not in ENDED and row.status != "parked":
                self.adoption.of(row, call.workflow)
        return row

    async def _while_a_suspect_is_alone(self, parent: str | None) -> None:
        """What is started here waits for it too, but not for long; its own children do not."""
        until = self.loop.time() + self.settings.suspect_patience
        while self.room.alone is not None and self.loop.time() < until and not self.closing:
            if self.room.alone in self.room.hands and self.room.hands[self.room.alone].id in self.room.line(
                parent
            ):
                return
            await asyncio.sleep(0.02)

    def gone(self, life: Life) -> None:
        """A life has ended. A run that has not is wanted back."""
        if self.lives.get(life.id) is life:
            del self.lives[life.id]
        self.post.forget(life.id)
        self.free(life)
        if life.id not in self.hung:
            self.room.drop(life.fence)
        if life.claimed and life.concluded:
            self._log_end(life)
        self.meters.life(life.workflow.name, life.how_it_ended)
        if life.span is not None:
            life.span.end(life)
        if self.draining:
            self.drain.gone(life)
        self.wake_claimers()  # its parent may have waited for it, or its queue be less full
        over = life.over
        wanted = not life.claimed and life.resting is None and not self.draining
        if wanted and isinstance(over, Evicted) and over.cause is None and life.verdict is None:
            self.adoption.of(life.row, life.workflow)

    def _log_end(self, life: Life) -> None:
        verdict, facts = life.verdict, self.facts(life.row)
        if verdict is not None and verdict.status == "failed":
            error = told_of(verdict.error, self.log_values) if verdict.error else "it does not say why"
            step = life.raised.get(verdict.failed_at or 0)
            log.warning(
                "run %s failed: %s", life.id, error, extra={**facts, "step": step, "status": "failed"}
            )
        elif verdict is not None:
            log.info("run %s is %s", life.id, verdict.status, extra={**facts, "status": verdict.status})
        elif life.how_it_ended != "parked":  # which is said by the hooks
            log.info("run %s is released: %s", life.id, life.over, extra={**facts, "status": "released"})

    def facts(self, row: RunRow, step: str | None = None, attempt: int | None = None) -> dict[str, Any]:
        """What a log line says of a run, or of a step of it, beside its text."""
        return {
            "run": row.id, "workflow": row.workflow, "queue": row.queue, "fence": abs(row.fence),
            "worker": row.worker or self.worker.id, "step": step, "attempt": attempt,
        }  # fmt: skip

    def veiled(self, error: BaseException | None) -> BaseException | None:
        """An error as a log may have it: without what it says, unless values may be logged."""
        return veiled(error, self.log_values)

    def free(self, life: Life) -> None:
        """Nothing of a run executes here any more: its slot is free."""
        if life.claimed and self.claimer is not None:
            self.claimer.done(life.fence)

    async def children_of(self, id: str) -> AsyncGenerator[RunRow, None]:
        """A run's children, newest first, a page at a time."""
        before = None
        while rows := await self.read(self.store.runs, RunQuery(parent=id, limit=100, before_pk=before)):
            for row in rows:
                before = row.pk
                yield row

    # -- what others want of a run

    async def cancel(self, id: str, why: str) -> Any:
        outcome = await self.writer.ask(Cancel(id, why))
        life = self.lives.get(id)
        if life is not None and not isinstance(outcome, Refused):
            requests.check(life, why)
        return outcome

    # -- waiting

    async def ended(self, id: str) -> End:
        """How a run ends, or that it was parked, wherever it executes."""
        while True:
            if self.closing:
                raise StoreUnavailable(f"Outlast was closed while run {id!r} was under way; it is resumable.")
            life = self.lives.get(id)
            if life is not None:
                end = await asyncio.shield(life.end)
                if end.status != "evicted":
                    return end
                if isinstance(life.over, Evicted) and life.over.cause is not None:
                    raise life.over.cause
                if self.closing:
                    raise StoreUnavailable(
                        f"Outlast was closed while run {id!r} was under way; it is resumable."
                    )
                if self.drain.by_signal:
                    raise Draining(
                        f"this process is on its way out and gave run {id!r} back: it goes on elsewhere."
                    )
            seen = self.changes.count
            row = await self.read(self.store.run, id)
            if row is None:
                return End("failed", error=encode_error(LookupError(f"run {id} is gone"), 1000))
            if row.status in ENDED or row.status == "parked":
                return End(row.status, row.value, row.error, row.reason)
            await self.changes.next(min(self.settings.poll, self._patience_for_others(id)), seen)

    def _patience_for_others(self, id: str) -> float:
        """Seconds that whoever waits here may still wait for what another process executes. Draining when there are none left."""
        drain = self.drain
        if not drain.by_signal or not drain.over.done() or drain.ends_here:
            return math.inf
        # A server with a handler of its own waits for its requests: nobody else would end this one. Until then it may get its answer.
        if drain.seconds_before_exit <= 0:
            raise Draining(f"this process is on its way out: run {id!r} is another's to execute.")
        return drain.seconds_before_exit

    async def while_parked(self, id: str) -> None:
        while True:
            seen = self.changes.count
            row = await self.read(self.store.run, id)
            if row is None or row.status != "parked":
                return
            await self.changes.next(self.settings.poll, seen)

    def _ring(self) -> None:
        self.wake_claimers()
        if (self.lives or self.hears_requests) and not self.closing:
            self.keep(self.loop.create_task(self.post.look_for_requests()))

    # -- small services

    async def read(self, fn: Callable[..., T], *args: Any) -> T:
        """Read from the store, in a thread, for `store_patience` seconds at most."""
        deadline = time.monotonic() + self.settings.store_patience
        found: T = await self.in_thread(_until, deadline, fn, *args)
        self.worker.has_read()
        return found

    async def in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Call something that blocks, in a thread."""
        if self.inline:
            return fn(*args)
        # In a context of its own: what the store does is no part of what its caller does, nor of its trace.
        return await self.pool.run(self.loop, Context(), fn, *args)

    def keep(self, task: asyncio.Task[T], *, quiet: bool = False) -> asyncio.Task[T]:
        """Hold a task until it has ended, and say so if it failed, unless whoever waits for it is told."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if quiet else self._kept)
        return task

    def _kept(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self.closing:
            log.error("a task of Outlast failed", exc_info=self.veiled(task.exception()))

    def check_size(self, text: str, what: str) -> None:
        if len(text) > self.settings.value_size_max:
            raise LimitExceeded("value_size_max", self.settings.value_size_max, len(text), what)

    def _lost(self, worker: str) -> None:
        self.meters.lease_lost()
        for life in list(self.lives.values()):
            if life.row.worker == worker:
                life.evict(lost("its worker was taken for dead"))
        for consumer in self.consumers:
            consumer.lost(worker)
        for fence, row in list(self.room.hands.items()):
            if row.worker == worker and row.id not in self.lives:
                self.intake.dropped(fence)
        if not self.draining:
            self.keep(self.loop.create_task(self.worker.enlist(instead_of=worker)))


def _until(deadline: float, fn: Callable[..., T], *args: Any) -> T:
    with until(deadline):
        return fn(*args)
