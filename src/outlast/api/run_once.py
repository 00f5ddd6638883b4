"""Define `run`, which executes one workflow in one call, in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from outlast.api.internals import internals
from outlast.api.outlast import Outlast
from outlast.api.run import conclude
from outlast.api.workflow import Call
from outlast.errors import Draining, NotInRun
from outlast.execution.refusal import refused
from outlast.execution.step_execution import BODY
from outlast.execution.threads import THREAD
from outlast.shutdown.process import INTERRUPTED, TRY_AGAIN, ProcessRole

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.engine.submission import OnConflict
    from outlast.execution.execution_state import RunOutcome
    from outlast.settings.options import SettingsOptions

R = TypeVar("R")


def run(
    call: Call[R],
    *,
    id: str | None = None,
    store: str | None = None,
    on_conflict: OnConflict = "raise",
    **settings: Unpack[SettingsOptions],
) -> R:
    """Execute a workflow in this process and return its result.

    After a crash, the same call with the same id continues from the last recorded step.
    `on_conflict` works as in `Outlast.start`.
    """
    if not isinstance(call, Call):
        raise TypeError(
            f"run() takes a call of a workflow, like run(report('tides')), not {call!r}."
        )
    if asyncio._get_running_loop() is not None or (THREAD.get() is not None and BODY.get() is None):
        raise refused(
            NotInRun(
                "run() is for programs that have no event loop. In a coroutine: "
                "`async with Outlast() as app: await (await app.start(call)).result()`. "
                "In a workflow: `await call`, or `outlast.sync.run(call)` in a sync one."
            )
        )

    async def main() -> tuple[str, RunOutcome]:
        app = Outlast(store, **settings)
        internals(app).set_process(ProcessRole.COMMAND)
        async with app:
            return await or_exit(app, ended(app))

    async def ended(app: Outlast) -> tuple[str, RunOutcome]:
        run = await app.start(call, id=id, on_conflict=on_conflict)
        return run.id, await internals(app).engine.runs.wait_until_ended(run.id)

    try:
        run_id, end = asyncio.run(main())
    except SystemExit as left:
        if left.code in (TRY_AGAIN, INTERRUPTED):
            if id is not None:
                named = f"run {id!r} was interrupted"
                call_again = "The same call resumes it"
            else:
                named = "the run was interrupted"
                call_again = "The same call with its id, which `outlast runs` shows, resumes it"
            _print_note(f"{named}. {call_again} from its last recorded step.")
        raise
    # Conclude here, not in the coroutine: the traceback of a failed or parked run then does not
    # show Outlast's internals.
    result: R = conclude(run_id, end, call.workflow.signature.returns())
    return result


async def or_exit(app: Outlast, coro: Coroutine[Any, Any, R]) -> R:
    """Return the coroutine's result, or raise SystemExit if a drain interrupted it.

    Only for a process that Outlast owns.
    """
    engine, process = internals(app).engine, internals(app).shutdown.process
    task = engine.loop.create_task(coro)
    engine.shutdown.announced.add_done_callback(lambda _: _report_waiting(engine))
    either: list[asyncio.Future[Any]] = [task, engine.shutdown.finished]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if task.done() and not (engine.shutdown.begun and isinstance(task.exception(), Draining)):
        return task.result()
    await asyncio.wait([engine.shutdown.finished])
    task.cancel()
    raise SystemExit(process.exit_code)


def _report_waiting(engine: Engine) -> None:
    """Tell a person at the terminal or reading the pod's log what the process waits for."""
    shutdown = engine.shutdown
    if engine.in_flight.executions:
        steps = f"{len(engine.in_flight.executions)} run" + (
            "s" if len(engine.in_flight.executions) > 1 else ""
        )
        _print_note(
            f"{shutdown.reason}: {steps} in flight; steps have "
            f"{shutdown.step_seconds_left:.0f} s to finish. Press Ctrl-C "
            f"{'again' if shutdown.reason == 'SIGINT' else 'twice'} to exit at once."
        )


def _print_note(text: str) -> None:
    # stderr may be closed.
    with suppress(OSError, ValueError):
        sys.stderr.write(f"outlast: {text}\n")
        sys.stderr.flush()
