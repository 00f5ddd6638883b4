"""Replay the runs that ended in a test, to find workflow code that makes different calls."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.api.internals import internals
from outlast.api.run import Run
from outlast.api.workflow import Call
from outlast.engine.in_flight_registry import InFlight
from outlast.errors import Diverged
from outlast.execution.definitions import WorkflowDefinition
from outlast.execution.source_lines import location, users_line
from outlast.execution.step_execution import BODY
from outlast.store.rows import RunQuery, RunRow
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.clock import VirtualClock
from outlast.testing.store_hooks import reopen
from outlast.testing.store_images import image_of, open_image

if TYPE_CHECKING:
    from outlast.api.outlast import Outlast
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.step_execution import StepExecution
    from outlast.testing.app import App

RUNS_MAX = 10_000
PATIENCE = 1e7
"""Virtual seconds after which a waiting replay is given up."""
DIFFERENCES_MAX = 3
"""The number of differing runs that are shown."""
TEXT_MAX = 200
"""The number of characters shown of a call or an outcome."""


HINT = (
    "Take the time, random numbers and new ids from now(), random() and uuid() of outlast, and do "
    "everything else in a step. "
    "@pytest.mark.outlast_no_replay skips this check."
)


class ReplayDiffers(AssertionError):
    """Workflow code behaved differently in a replay than its journal records."""

    def __init__(self, found: list[Difference]) -> None:
        more = (
            [f"and {len(found) - DIFFERENCES_MAX} more runs"]
            if len(found) > DIFFERENCES_MAX
            else []
        )
        super().__init__("\n".join([*map(str, found[:DIFFERENCES_MAX]), *more, HINT]))


class Difference(NamedTuple):
    """Describe how the replay of one run differs from its journal."""

    run: str
    workflow: str
    code: str
    """What the code called, or ended with, in the replay."""
    journal: str
    """What the journal has there."""
    line: str
    """The line of the user's code, as file:line."""

    def __str__(self) -> str:
        return (
            f"run {self.run!r} of workflow {self.workflow} does not replay:\n"
            f"  the code:    {_cut(self.code)}\n"
            f"  the journal: {_cut(self.journal)}\n"
            f"  at {self.line}"
        )


class _LastExecutions(InFlight):
    """Remember the last execution of each run, even after it has ended."""

    def __init__(self, on_hung_ended: Callable[[], None] = lambda: None) -> None:
        super().__init__(on_hung_ended)
        self.last: dict[str, RunExecution] = {}

    def add_execution(self, execution: RunExecution) -> None:
        self.last[execution.id] = execution
        super().add_execution(execution)


class _NoBodies(dict[Any, Callable[..., Any]]):
    """Stand in for every step, because a replay executes none."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str | None]] = []
        """Calls that the journal does not have, each with the line that made it."""

    def get(self, step: Any, default: Any = None) -> Any:  # noqa: ARG002 - no step is executed
        def refuse(*_: Any, **__: Any) -> Any:
            self.asked.append(_call_of(BODY.get(), step.name))
            raise AssertionError(f"step {step.name} is not recorded, and a replay executes nothing")

        async def refuse_async(*_: Any, **__: Any) -> Any:
            return refuse()

        return refuse_async if inspect.iscoroutinefunction(step.fn) else refuse

    def __contains__(self, _: object) -> bool:
        return True


def _call_of(body: StepExecution | None, name: str) -> tuple[str, str | None]:
    """Return the call that a step execution belongs to, and the line that made it."""
    call_site = None if body is None else body.execution.calls.sites.get(body.outer.key)
    if call_site is None:
        return f"step {name}", None
    return str(call_site), None if call_site.line is None else location(call_site.line)


def differences(app: App, workflows: Mapping[str, WorkflowDefinition]) -> list[Difference]:
    """Replay the done and failed runs in an app's memory, and return those that ended differently.

    Each run is replayed from its journal in a copy of the store. Cancelled and compensated runs are
    left out.
    """
    from outlast.testing.app import App

    if (
        not isinstance(app.store, SQLiteStore)
        or app.store.path is not None
        or not app.store._opened
    ):
        return []
    rows = [row for row in app.store.runs(RunQuery(limit=RUNS_MAX)) if _can_be_replayed(app, row)]
    rows = [row for row in rows if row.workflow in workflows]
    if not rows:
        return []
    clock = VirtualClock(app.clock() + 1)
    copy = open_image(image_of(app.store), clock=clock)
    settings = {
        name: value
        for name, value in internals(app).config.given.items()
        if name not in ("store", "queues")
    }
    again = App(copy, clock=clock, **settings)
    again._is_replay = True
    again._in_flight = _LastExecutions
    bodies = again._stubs = _NoBodies()

    async def main(opened: Outlast) -> list[Difference]:
        executions = internals(opened).engine.in_flight
        assert isinstance(executions, _LastExecutions)
        found = (
            await _difference(opened, copy, row, workflows[row.workflow], bodies, executions)
            for row in rows
        )
        return [one async for one in found if one is not None]

    try:
        with _no_logs():
            return again.do(main)
    finally:
        copy.close()


@contextmanager
def _no_logs() -> Iterator[None]:
    """Silence logging: a run that parks in a replay is of no interest."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _can_be_replayed(app: App, row: RunRow) -> bool:
    if row.status not in ("done", "failed") or row.cancel is not None or row.undoing is not None:
        return False
    return all(entry.kind != "undoing" for entry in app.store.journal(row.pk))


async def _difference(
    app: Outlast,
    store: SQLiteStore,
    row: RunRow,
    workflow: WorkflowDefinition,
    bodies: _NoBodies,
    executions: _LastExecutions,
) -> Difference | None:
    """Return how the replay of one run differs from its record, or None if it does not."""
    recorded = await _end(app, row, workflow)
    bodies.asked.clear()
    reopen(store, row.id)
    replayed = await _end(app, row, workflow)
    execution = executions.last.get(row.id)
    executions.last.clear()

    def differs(code: str, journal: str, line: str | None) -> Difference:
        return Difference(row.id, row.workflow, code, journal, line or _first_line(workflow))

    reason = None if execution is None else execution.end_reason
    over = None if reason is None else reason.error
    if isinstance(over, Diverged):
        return differs(over.asked, over.recorded, over.line)
    if bodies.asked:
        call, line = bodies.asked[0]
        return differs(call, "nothing more", line)
    if replayed == recorded:
        return None
    after = store.run(row.id)
    if replayed[0] == recorded[0] == "returns" and after is not None and after.value == row.value:
        # A result whose type defines no equality.
        return None
    if execution is not None and execution.main is not None and execution.end_reason is None:
        return differs(
            "waits", _description(recorded), users_line(workflow.fn.__module__, [execution.main])
        )
    return differs(_description(replayed), _description(recorded), None)


async def _end(app: Outlast, row: RunRow, workflow: WorkflowDefinition) -> tuple[str, Any]:
    """Return how a run ends: its result, or its error as text."""
    try:
        args, kwargs = workflow.signature.decode(row.args)
        run: Run[Any] = await app.start(Call(workflow, args, kwargs), id=row.id)
        return "returns", await run.result(timeout=PATIENCE)
    except Exception as error:
        return "raises", f"{type(error).__name__}: {error}"


def _description(end: tuple[str, Any]) -> str:
    return f"{end[0]} {end[1] if end[0] == 'raises' else repr(end[1])}"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def _first_line(workflow: WorkflowDefinition) -> str:
    code = inspect.unwrap(workflow.fn).__code__
    return location((code, code.co_firstlineno))
