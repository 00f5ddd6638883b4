"""Crash a run at every write and in every act, and check that it ends as if undisturbed.

`crash_everywhere` lets the process die before and after its Nth write, for every N, and likewise in
the Nth act of an effect. Each life has a fresh event loop, a fresh app and a reopened store: from
bytes for `memory:`, from its file or server otherwise. No Python object survives into the next
life. See `killed_processes` for lives that are processes.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias, TypeVar, Unpack

from outlast.api.internals import internals
from outlast.api.outlast import Outlast
from outlast.api.step import StepBase
from outlast.api.workflow import Call
from outlast.execution.execution_state import EndKind, EndReason
from outlast.settings.options import SettingsOptions
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, Entry, RunQuery
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.app import App
from outlast.testing.clock import VirtualClock, VirtualLoop, anyio_threads
from outlast.testing.crash_points import Crash, CrashingActs, CrashingStore, Point, Where
from outlast.testing.crash_report import Broke, CrashReport
from outlast.testing.store_hooks import kill, reopen
from outlast.testing.store_images import EmptyStore, empty_file, image_of, open_image

R = TypeVar("R")
Outside = Callable[[Outlast], Awaitable[None]]

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


Place: TypeAlias = Callable[[Callable[[], float]], Store]
"""Creates the unopened store of one location on the given clock."""

LIVES_MAX = 50
HEARTBEAT = 0.001


class _SurvivingState:
    """Hold what survives a crash: bytes or a store location, and the clock."""

    def __init__(self, place: Place | None, seed: int | None, loop: LoopFactory | None) -> None:
        self.place, self.seed = place, seed
        self.virtual = VirtualClock()
        self.clock: Callable[[], float] = self.virtual if loop is None else time.time
        self.image: bytes | None = None
        self._loop = loop

    def loop(self) -> asyncio.AbstractEventLoop:
        return self.virtual.loop(self.seed) if self._loop is None else self._loop()

    def open(self) -> Store:
        if self.image is not None:
            return open_image(self.image, clock=self.clock)
        store = EmptyStore(clock=self.clock) if self.place is None else self.place(self.clock)
        store.open()
        return store

    def save(self, store: Store) -> None:
        if self.place is None:
            assert isinstance(store, SQLiteStore)
            self.image = image_of(store)
        kill(store)


@contextmanager
def _new_place(store: str | Callable[[], Place]) -> Iterator[Place | None]:
    """Yield a new store location for one story, or None for memory."""
    if store == "memory:":
        yield None
    elif not isinstance(store, str):
        yield store()
    else:
        with TemporaryDirectory() as folder:
            path = empty_file(Path(folder) / "crash.db")
            yield lambda clock: SQLiteStore(path, clock=clock, heartbeat=HEARTBEAT)


def crash_everywhere(
    call: Call[R],
    *,
    store: Literal["memory:", "sqlite"] | Callable[[], Place] = "memory:",
    outside: Outside | None = None,
    seed: int | None = None,
    every_life: bool = False,
    writes: Sequence[int] | None = None,
    acts: Sequence[int] | None = None,
    loop: LoopFactory | None = None,
    fresh: Callable[[], object] | None = None,
    check: Callable[[], object] | None = None,
    stubs: Mapping[StepBase[..., Any], Callable[..., Any]] | None = None,
    **settings: Unpack[SettingsOptions],
) -> CrashReport[R]:
    """Execute a call undisturbed, then again with a crash at every write, and compare the outcomes.

    If the call has effects, it is executed again with a crash in every act: before anything has
    happened, and after it has happened but is not recorded. Each of these executions, from the
    first life to the end of the run, is one story.

    Time is virtual, and `seed` shuffles what is ready at once. `loop` creates event loops for real
    time instead (`uvloop.new_event_loop`).

    `store` may be a function that finds a new, empty location for each story, and returns what
    creates its store; see `testing.store_hooks`. `outside` is what people do in every life (`await
    app.send(...)`, with message ids so that a repeat is harmless).

    With `every_life`, each life crashes at its Nth write or act, not only the first. `writes` and
    `acts` pick the Ns. Without them, N grows until there is nothing left to crash at.

    `fresh` is called before each story, to reset the outside world that the test keeps in memory.
    `check` is called after it, to inspect that world; its AssertionError is reported with the
    crash.

    `stubs` maps steps and effects to functions to call instead, as `app.stub(step, calls=…)` does.
    A stubbed effect counts as having touched nothing. After a crash in its act it is called again,
    its `verify` is not called, and its compensation does nothing unless it has a stub too.

    Raise `Broke` if a result differs, if a recorded step is executed again, or if replaying the
    finished journal would execute anything or end differently.
    """
    if not isinstance(call, Call):
        raise TypeError(
            "crash_everywhere() takes a call of a workflow, like "
            f"crash_everywhere(report('tides')), not {call!r}."
        )
    report: CrashReport[R] = CrashReport()
    # The run is not to blame for dying so often.
    patient = {"max_attempts": 1_000, "death_backoff": 0.001, "death_backoff_max": 0.01}
    options: dict[str, Any] = {**patient, **settings}
    setting = _Setting(call, store, outside, seed, loop, options, report, fresh, check, stubs or {})
    expected = setting.story(None, every_life=False)
    report.result, report.error = expected
    report.writes = setting.everywhere("write", writes, expected, every_life=every_life)
    if setting.has_effects:
        report.acts = setting.everywhere("act", acts, expected, every_life=every_life)
    return report


@dataclass
class _Setting:
    """Hold one call and the circumstances it is tested under."""

    call: Call[Any]
    store: str | Callable[[], Place]
    outside: Outside | None
    seed: int | None
    loop: LoopFactory | None
    settings: dict[str, Any]
    report: CrashReport[Any]
    fresh: Callable[[], object] | None
    check: Callable[[], object] | None
    stubs: Mapping[StepBase[..., Any], Callable[..., Any]]
    has_effects: bool = False
    hit: str = ""
    """What the last crash hit: the entries or commands of the write, or the effect that acted."""

    def _place(self, point: Point | None) -> str:
        """Describe a point for a message: `a crash after write 4 (step price#1)`."""
        if point is None:
            return "no crash"
        return f"{point} ({self.hit})" if self.hit else str(point)

    def everywhere(
        self,
        where: Where,
        chosen: Sequence[int] | None,
        expected: tuple[Any, str | None],
        *,
        every_life: bool,
    ) -> int:
        """Execute a story for each point until none is left, and return the last N."""
        with _without_complaints():
            return self._everywhere(where, chosen, expected, every_life=every_life)

    def _everywhere(
        self,
        where: Where,
        chosen: Sequence[int] | None,
        expected: tuple[Any, str | None],
        *,
        every_life: bool,
    ) -> int:
        last = 0
        for at in chosen if chosen is not None else itertools.count(1):
            hit = False
            for when in ("before", "after"):
                crashes, point = self.report.crashes, Point(where, at, when)
                end = self.story(point, every_life=every_life)
                hit = hit or self.report.crashes > crashes
                if end != expected:
                    raise Broke(
                        f"after {self._place(point)}, the run ended with {_description(end)}. "
                        f"Without a crash it ended with {_description(expected)} (seed {self.seed})"
                    )
            last = at
            if not hit and chosen is None:
                break
        return last

    def story(self, point: Point | None, *, every_life: bool) -> tuple[Any, str | None]:
        """Execute life after life until the run has ended, then replay its journal."""
        self.hit = ""
        if self.fresh is not None:
            self.fresh()
        end = self._lives(point, every_life=every_life)
        if self.check is not None:
            try:
                self.check()
            except AssertionError as broken:
                raise Broke(
                    f"check() failed after {self._place(point)}: {broken} (seed {self.seed})"
                ) from broken
        return end

    def _lives(self, point: Point | None, *, every_life: bool) -> tuple[Any, str | None]:
        with _new_place(self.store) as place:
            surviving = _SurvivingState(place, self.seed, self.loop)
            recorded: set[str] = set()
            for number in range(LIVES_MAX):
                dies = number == 0 or (every_life and number < LIVES_MAX // 2)
                ended = self.execute(surviving, point if dies else None, recorded)
                if ended is not None:
                    self._replay(surviving, ended, recorded)
                    return ended
        raise Broke(
            f"after {self._place(point)}, the run did not end in {LIVES_MAX} lives "
            f"(seed {self.seed})"
        )

    def execute(
        self, surviving: _SurvivingState, point: Point | None, recorded: set[str]
    ) -> tuple[Any, str | None] | None:
        """Execute one life. Return the run's outcome, or None if it crashed."""
        self.report.lives += 1
        store = surviving.open()
        at = point.at if point is not None and point.where == "write" else None
        plug = CrashingStore(store, at, point.when if point is not None else "after", lambda: None)
        app = App(plug, clock=surviving.virtual, seed=self.seed, **self.settings)
        executed: list[str] = []

        def observe(run: str, key: str) -> None:
            executed.append(f"{run} {key}")

        app._observe = observe  # type: ignore[method-assign]
        loop = surviving.loop()
        acts = app._stubs = CrashingActs(plug, point, loop)
        for step, fn in self.stubs.items():
            app.stub(step, calls=fn)
        try:
            ended = loop.run_until_complete(self._main(app))
        except Crash:
            ended = None
            self.report.crashes += 1
            self.hit = plug.hit
            _forget(loop, app)
        else:
            loop.run_until_complete(loop.shutdown_asyncgens())
        self.has_effects = self.has_effects or acts.count > 0
        twice = [key for key in executed if key in recorded]
        if twice:
            raise Broke(
                f"after {self._place(point)}, steps were executed again although they had been "
                f"recorded: {', '.join(twice)} (seed {self.seed})"
            )
        recorded |= {f"{run} {entry.key}" for run, entry in _entries(store) if entry.kind == "step"}
        if ended is None:
            self.report.redone += [key for key in executed if key not in recorded]
        surviving.save(store)
        surviving.virtual.advance(0.01)
        loop.close()
        return ended

    async def _main(self, app: App) -> tuple[Any, str | None]:
        async with app:
            run = await app.start(self.call.again(), id="crash")
            world = asyncio.ensure_future(self.outside(app)) if self.outside is not None else None
            try:
                return await run.result(), None
            except Exception as error:
                return None, f"{type(error).__name__}: {error}"
            finally:
                if world is not None:
                    world.cancel()

    def _replay(
        self, surviving: _SurvivingState, ended: tuple[Any, str | None], recorded: set[str]
    ) -> None:
        """Replay the finished journal: it must lead to the same outcome and execute nothing."""
        store = surviving.open()
        left = _left_undone(store)
        if left and ended[1] is not None:
            raise Broke(
                "the run failed and left these unfinished or uncompensated: "
                f"{', '.join(left)} (seed {self.seed})"
            )
        reopen(store, "crash")
        surviving.save(store)
        again = self.execute(surviving, None, recorded)
        if again != ended:
            raise Broke(
                f"the run ended with {_description(ended)}, but replaying its journal ended with "
                f"{_description(again) if again else 'nothing'} (seed {self.seed})"
            )


def _description(end: tuple[Any, str | None]) -> str:
    """Return how a run ended: its error, or its result."""
    result, error = end
    return error or repr(result)


def _left_undone(store: Store) -> list[str]:
    """Return the descendants of an ended run that have not ended or are not compensated yet."""
    rows = {row.id: row for row in store.runs(RunQuery(limit=10_000))}
    if rows["crash"].status not in ENDED:
        return []
    below: list[str] = []
    for row in sorted(rows.values(), key=lambda row: row.pk):
        if row.parent == "crash" or row.parent in below:
            below.append(row.id)
    return [id for id in below if rows[id].undoing is not None or rows[id].status not in ENDED]


def _entries(store: Store) -> list[tuple[str, Entry]]:
    rows = store.runs(RunQuery(limit=10_000))
    return [(row.id, entry) for row in rows for entry in store.journal(row.pk)]


def _forget(loop: asyncio.AbstractEventLoop, app: App) -> None:
    """Stop what the objects of a dead process would still do.

    Their `finally` blocks may execute. Every call they make to Outlast raises, and the store
    refuses their writes.
    """
    tasks: list[asyncio.Task[Any]] = list(asyncio.all_tasks(loop))
    tasks += [task for task in app._detached if not task.done()]
    if internals(app).is_open:
        for execution in internals(app).engine.in_flight.executions.values():
            execution.stop(EndReason(EndKind.LOST, Crash()))
            tasks += execution.loop.tasks
    if isinstance(loop, VirtualLoop):
        loop.forget()
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        # Code that awaits in a `finally` cannot: its loop is gone.
        with suppress(BaseException):
            task.get_coro().close()
    for thread in anyio_threads(loop):
        thread.stop()


@contextmanager
def _without_complaints() -> Iterator[None]:
    """Ignore what coroutines of dead processes complain about when they are closed or collected.

    They were not awaited, and their `finally` blocks have no loop.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            yield
            gc.collect()
    finally:
        sys.unraisablehook = hook


__all__ = ["Broke", "CrashReport", "crash_everywhere"]
