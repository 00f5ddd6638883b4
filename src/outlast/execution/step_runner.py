"""Execute the bodies of steps, with their attempts, on the host loop or in a thread."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from outlast.codec.exceptions import CANCELLED, encode_error
from outlast.errors import (
    Draining,
    Evicted,
    LimitExceeded,
    SettingsError,
    StepFailed,
    StepTimeout,
    Unrecordable,
)
from outlast.execution import publishing, recording
from outlast.execution.call_site import CallSite
from outlast.execution.execution_state import EndReason
from outlast.execution.step_attempts import delay_before, log_call, record_failure
from outlast.execution.step_execution import BODY, StepExecution, StepState
from outlast.execution.step_pauses import pause, wait_if_postponed, wait_until
from outlast.execution.time_limits import limited_by
from outlast.execution.unit_scope import UNIT

if TYPE_CHECKING:
    from outlast.execution.definitions import StepDefinition
    from outlast.execution.journal import Attempts
    from outlast.execution.run_execution import RunExecution

log = logging.getLogger("outlast.replay")


def launch(
    execution: RunExecution, call_site: CallSite, step: StepDefinition, args: Any, kwargs: Any
) -> None:
    """Start a step's body on the host loop. Called on the run loop."""
    body = StepExecution(execution, call_site.key, step.name, {})
    # A task copies the context it is created in, so the body can set itself as the current one.
    work = (
        _perform(body, call_site, step, args, kwargs)
        if execution.trace.span is None
        else execution.trace.span.around(
            body, partial(_perform, body, call_site, step, args, kwargs)
        )
    )
    body.start(work)
    call_site.stop = partial(_stop, body, call_site)


def _stop(body: StepExecution, call_site: CallSite) -> None:
    """Cancel a step on behalf of the workflow.

    A task that is cancelled before its first turn never executes, so the cancellation is recorded
    here.
    """
    task = body.task
    if task is not None:
        task.cancel()
        if body.state is StepState.SCHEDULED:
            body.end()
            recording.record(
                body.execution, "step", call_site.key, call_site.args, error=CANCELLED, asked=True
            )
            body.ended("cancelled")


async def _perform(
    body: StepExecution, call_site: CallSite, step: StepDefinition, args: Any, kwargs: Any
) -> None:
    BODY.set(body)
    execution = body.execution
    body.begin()
    text_max = execution.services.settings.error_text_max
    if execution.services.steps.on_start is not None:
        execution.services.steps.on_start(execution.id, call_site.key)
    text = error = None
    try:
        earlier = execution.journal.attempts.pop(call_site.key, None)
        if earlier is not None:
            await _await_next(body, earlier)
        while True:
            try:
                text, call_site.value = await attempt(body, step, args, kwargs)
            except BaseException:
                if not await wait_if_postponed(body, call_site, step, args, kwargs):
                    raise
            else:
                if not await wait_if_postponed(body, call_site, step, args, kwargs):
                    break
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if call_site.asked:
            error = CANCELLED
        elif body.leaving is not None:
            return
        elif task is not None and task.cancelling():
            why = "its step was cancelled from outside, as at the end of the program"
            execution.stop(EndReason.released(why))
            return
        else:
            # The body raised a CancelledError that nothing had requested.
            error = encode_error(StepFailed("asyncio.CancelledError", str(cancelled)), text_max)
    except Evicted:
        return
    except Draining as refused:
        if execution.services.shutdown.begun:
            # A draining process refused the call. The next execution makes it.
            return
        error = encode_error(refused, text_max)
    except (SystemExit, KeyboardInterrupt):
        # The program ends. The next execution repeats the step.
        execution.stop(EndReason.released("its program ended in the middle of a step"))
        raise
    except BaseException as raised:
        error = encode_error(raised, text_max, step.errors)
    finally:
        # Nothing is awaited from here on. A done callback would cost each step a turn of the host
        # loop.
        body.end()
        execution.settled()
    if body.is_cut and not call_site.asked:
        # Do not record a result that was cut short.
        return
    _record(body, call_site, step, text, error)


async def _await_next(body: StepExecution, earlier: Attempts) -> None:
    """Wait until the next attempt, as an earlier execution has recorded it."""
    body.prepare_attempt(earlier.count + 1)
    if earlier.postponed:
        await wait_until(body, earlier.due)
    else:
        await pause(body, earlier.due - body.execution.clock.now())


def _record(
    body: StepExecution,
    call_site: CallSite,
    step: StepDefinition,
    text: str | None,
    error: str | None,
) -> None:
    """Record the step's outcome and update metrics."""
    execution = body.execution
    if execution.services.settings.log_values:
        log_call(body, call_site.args or "", text, error)
    seconds = perf_counter() - body.started
    cost = None if body.cost is None else body.take_cost()
    recorded = recording.record(
        execution,
        "step",
        call_site.key,
        call_site.args,
        text,
        error,
        seconds,
        body.attempt,
        call_site.asked,
        cost=cost,
    )
    if error is None:
        took = execution.host.time() - body.since
        if step.is_measured:
            execution.services.steps.durations.add(execution.workflow.name, body.name, took)
        if recorded:
            body.ended("done", took)
    elif recorded:
        body.ended("cancelled" if error == CANCELLED else "failed", error=error)


async def attempt(
    body: StepExecution, step: StepDefinition, args: Any, kwargs: Any
) -> tuple[str, Any]:
    """Make attempts until one succeeds or none is left.

    Return the result as recorded text and as the value that every execution decodes from it. Raise
    the last error if no attempt succeeds. The body owns the arguments.
    """
    codec = step.signature.returns()
    services = body.execution.services
    given = (args, kwargs)
    while True:
        thread: list[asyncio.Future[Any]] = []
        if body.attempt <= step.retries:
            # The attempt may change its arguments, and another attempt may follow.
            args, kwargs = step.signature.copied(*given)
        else:
            args, kwargs = given
        before = step.signature.fingerprint(args, kwargs) if step.watched else ""
        body.become_active()
        try:
            try:
                if step.is_async and step.timeout is None:
                    value = await services.steps.overrides.get(step, step.fn)(*args, **kwargs)
                else:
                    value = await _bounded(body, step, args, kwargs, thread)
                text, value = codec.round_trip(value)
                if len(text) > services.settings.value_size_max:
                    services.check_size(text, f"the result of step {step.name}")
                if body.publishers is not None or body.execution.steps.published.streams:
                    await publishing.finish(body)
            except BaseException:
                if body.publishers is not None:
                    publishing.abandon(body)
                raise
        except Unrecordable as error:
            raise Unrecordable(f"step {step.name}: {error}") from error.__cause__
        except (LimitExceeded, SettingsError):
            # Another attempt would fail in the same way.
            raise
        except Exception as error:
            if body.attempt > step.retries or not isinstance(error, step.retry_on):
                raise
            if _is_interrupted(body, error):
                # It does not use up an attempt.
                raise
            delay = delay_before(step, body.attempt)
            record_failure(body, error, delay)
            body.forget_listeners()
            if thread:
                # No attempt starts while the thread of the last one is alive.
                await asyncio.wait(thread)
            await pause(body, delay)
            body.prepare_attempt(body.attempt + 1)
        else:
            if step.watched:
                _warn_if_changed(body, step, before, args, kwargs)
            return text, value


def _warn_if_changed(
    body: StepExecution, step: StepDefinition, before: str, args: Any, kwargs: Any
) -> None:
    """Warn, once per step and process, if a step changes its arguments.

    They are copies. The workflow never sees the change.
    """
    step.watched -= 1
    if step.signature.changed(before, args, kwargs):
        step.watched = 0
        message = (
            "Step %s changes its arguments. They are copies, so the workflow does not see the "
            "change. Return what the workflow needs."
        )
        log.warning(
            message, step.name, extra=body.execution.log_fields(body.outer.key, body.attempt)
        )


def _is_interrupted(body: StepExecution, error: Exception) -> bool:
    """Return whether an error comes from a drain, or from a limiter or budget without room."""
    refused = body.execution.services.shutdown.begun and isinstance(error, Draining)
    return refused or body.outer.is_cut or body.outer.postponed is not None


async def _bounded(
    body: StepExecution,
    step: StepDefinition,
    args: Any,
    kwargs: Any,
    thread: list[asyncio.Future[Any]],
) -> Any:
    """Make one attempt within the step's time-out, in a thread if the step is sync.

    Raise StepTimeout if it takes longer.
    """
    fn = body.execution.services.steps.overrides.get(step, step.fn)
    try:
        async with asyncio.timeout(step.timeout) as limit:
            if step.is_async:
                with limited_by(limit):
                    return await fn(*args, **kwargs)
            future = body.execution.services.steps.in_thread(fn, *args, **kwargs)
            thread.append(future)
            body.execution.steps.watch_thread(future, body.execution.settled)
            body.outer.add_thread(future)
            try:
                return await asyncio.shield(future)
            finally:
                if not future.done() and body.outer is not body:
                    # The thread continues without its step.
                    future.add_done_callback(partial(_abandoned_thread_ended, body.outer))
    except TimeoutError as error:
        if limit.expired():
            raise StepTimeout(
                f"step {step.name} took longer than its timeout of {step.timeout} s."
            ) from error
        raise


def _abandoned_thread_ended(outer: StepExecution, _: asyncio.Future[Any]) -> None:
    if outer.leaving is not None:
        outer.cancel()


async def inner(body: StepExecution, step: StepDefinition, args: Any, kwargs: Any) -> Any:
    """Execute a step that another step's body calls.

    Its result is recorded by name and arguments under the outer step, and is reused when the outer
    step is repeated. Failures are not recorded: they are part of the outer attempt.
    """
    execution = body.execution
    execution.check_active()
    execution.services.shutdown.check_nested(UNIT.get(), stopping=body.outer.leaving is not None)
    fingerprint = step.signature.fingerprint(args, kwargs)
    call = f"{step.name}({fingerprint})"
    key = f"{body.key}/{call}#{body.number_call(call)}"
    recorded = execution.journal.inner.get(key)
    known = body.results.get(key) or (recorded.value if recorded is not None else None)
    if known is not None:
        execution.services.metrics.replayed(execution.workflow.name)
        return step.signature.returns().decode(known)
    args, kwargs = step.signature.copied(args, kwargs)
    within = StepExecution(execution, key, step.name, body.results, body)
    within.begin()
    token = BODY.set(within)
    execution.steps.enter_nested(within.outer)
    try:
        with within.open_part():
            if execution.trace.span is None:
                text, value = await attempt(within, step, args, kwargs)
            else:
                text, value = await execution.trace.span.around(
                    within, partial(attempt, within, step, args, kwargs)
                )
            seconds = perf_counter() - within.started
            await recording.record_and_wait(
                execution,
                "inner",
                key,
                args=fingerprint,
                value=text,
                seconds=seconds,
                attempt=within.attempt,
                cost=within.take_cost(),
            )
        body.results[key] = text
        within.ended("done", execution.host.time() - within.since)
    except Exception as error:
        if not isinstance(error, (Evicted, Draining)):
            within.ended("failed")
        raise
    finally:
        execution.steps.leave_nested(within.outer)
        BODY.reset(token)
        within.forget_listeners()
        within.end()
        within.move_cost_to(body)
        if body.outer.must_stop:
            body.outer.cancel()
    return value
