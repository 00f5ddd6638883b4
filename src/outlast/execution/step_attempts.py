"""Log and record the attempts of steps and effects, and time the next one."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from outlast.codec.exceptions import encode_error
from outlast.execution import recording
from outlast.telemetry.error_text import cut, format_error, format_recorded

if TYPE_CHECKING:
    from outlast.execution.definitions import StepDefinition
    from outlast.execution.step_execution import StepExecution

log = logging.getLogger("outlast.replay")
_jitter = random.Random()  # noqa: S311 - no secret; leaves the program's seeded one alone


def log_call(body: StepExecution, args: str, text: str | None, error: str | None) -> None:
    """Log a step's arguments and its outcome, cut to the length that the settings allow."""
    execution = body.execution
    characters = body.execution.services.log_values
    came = (
        f"raised {format_recorded(error, characters)}"
        if error is not None
        else cut(text or "null", characters)
    )
    message = "%s %s(%s) of run %s: %s"
    log.debug(
        message, body.kind, body.key, cut(args, characters), execution.id, came,
        extra=execution.log_fields(body.key, body.attempt),
    )  # fmt: skip


def delay_before(step: StepDefinition, attempt: int) -> float:
    """Return the delay after a failed attempt, in seconds.

    It doubles from `backoff` up to `backoff_max`, with up to 50 % jitter so that retries spread
    out.
    """
    full: float = min(step.backoff_max, step.backoff * 2.0 ** min(attempt - 1, 60))
    return full * (0.5 + _jitter.random() / 2)


def attempt_failed(body: StepExecution, error: str, delay: float | None) -> None:
    """Log and count a failed attempt.

    `delay` is None if it is not certain that another attempt follows.
    """
    body.ended("retried")
    # The key of a step within a step contains its arguments.
    key = body.outer.key
    step = f"{body.kind} {key}" if body.outer is body else f"step {body.name} in {key}"
    log.info(
        "Attempt %d of %s of run %s failed: %s%s",
        body.attempt,
        step,
        body.execution.id,
        error,
        "" if delay is None else f"; the next in {delay:.3g} s",
        extra=body.execution.log_fields(key, body.attempt),
    )


def record_failure(body: StepExecution, error: BaseException, delay: float) -> None:
    """Log and record a failed attempt that another one follows.

    Attempts of a step within a step are only logged: they are part of the outer attempt.
    """
    execution = body.execution
    attempt_failed(body, format_error(error, execution.services.log_values), delay)
    if body.task is not None:
        error_text = encode_error(error, execution.services.settings.error_text_max)
        body.note_error(error_text)
        recording.record(
            execution,
            "attempt",
            body.key,
            value=str(execution.clock.now() + delay),
            error=error_text,
            seconds=execution.host.time() - body.since,
            attempt=body.attempt,
            cost=body.take_cost(),
        )
