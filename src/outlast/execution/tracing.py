"""Create OpenTelemetry spans if the program has loaded OpenTelemetry and set a provider.

Otherwise nothing is imported, and a step costs one check.

Each run has one trace, across all its executions and workers. The ids of the trace and of its root,
which is never sent, derive from the run's seed, so nothing more is stored. Each execution is a span
below that root, and steps are below their execution. Spans contain no values, and only the type of
an error.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.codec.exceptions import CANCELLED, parts_of_error
from outlast.errors import Evicted, RunParked
from outlast.execution.execution_state import EndKind, EndReason, OutcomeKind, RunOutcome
from outlast.telemetry.error_text import format_error

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

    from outlast.execution.run_execution import RunExecution
    from outlast.execution.step_execution import StepExecution
    from outlast.store.protocol import Store
    from outlast.store.rows import RunRow

log = logging.getLogger("outlast.telemetry")

T = TypeVar("T")
FLUSH_SECONDS = 2.0
"""How long a drain waits for spans to be sent, but at most half of its remaining grace."""
LINKS_MAX = 100
"""Links from the span of one submission to the runs that it created."""


class Spans:
    """The spans of one engine.

    While there is no provider, each execution asks for one again: a program may set it in its
    lifespan.
    """

    def __init__(self) -> None:
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        self._given_up = False
        """There will be no tracer, and a warning has said so: the environment names a provider that
        does not exist, or the provider makes no tracer.
        """

    def tracer(self) -> Tracer | None:
        trace: Any = sys.modules.get("opentelemetry.trace")
        if self._tracer is not None or self._given_up or not hasattr(trace, "get_tracer_provider"):
            # The module lacks the function while another thread is still importing it.
            return self._tracer
        try:
            provider = trace.get_tracer_provider()
            if not isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
                self._provider = provider
                self._tracer = provider.get_tracer("outlast")
        except Exception as error:
            self._given_up = True
            log.warning(
                "Spans are turned off, because the provider returned no tracer: %s",
                type(error).__name__,
            )
        return self._tracer

    def above(self, store: Store, row: RunRow) -> RunRow | None:
        """Return the run that started this one, to link to its trace.

        Return None if there is none, or if no spans are wanted. This reads the store, so do not
        call it on the event loop.
        """
        wanted = row.parent is not None and self.tracer() is not None
        return _safely(store.run, row.parent) if wanted else None

    def of(self, execution: RunExecution) -> ExecutionSpan | None:
        """Return the span of an execution that begins now; None if no spans are wanted."""
        tracer = self.tracer()
        return None if tracer is None else _safely(ExecutionSpan, self, tracer, execution)

    def root(self, seed: str, workflow: str) -> SpanContext:
        """Return the root of a run's trace: the parent of all its executions.

        The sampler decides here, by the trace's id, whether they are sent, so the decision is the
        same in every execution. A sampler that is asked about a child would only look at its
        parent's decision.
        """
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanContext, TraceFlags

        made = sha256(bytes.fromhex(seed)).digest()
        trace_id = int.from_bytes(made[:16]) or 1
        span_id = int.from_bytes(made[16:24]) or 1
        sampler = getattr(self._provider, "sampler", None)
        wanted = sampler is None or (
            sampler.should_sample(Context(), trace_id, f"run {workflow}").decision.is_sampled()
        )
        flags = TraceFlags(TraceFlags.SAMPLED if wanted else TraceFlags.DEFAULT)
        return SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)

    @contextmanager
    def starting(self, what: str, workflow: str) -> Iterator[Callable[[Iterable[str]], None]]:
        """Wrap a submission or a start in a span of the caller's own trace.

        It yields a function that takes the seeds of the created runs, and links to them.
        """
        tracer = self.tracer()
        if tracer is None:
            yield lambda _: None
            return
        from opentelemetry.trace import SpanKind, StatusCode, use_span

        span = _safely(partial(tracer.start_span, f"{what} {workflow}", kind=SpanKind.PRODUCER))
        if span is None:
            yield lambda _: None
            return

        def link(seeds: Iterable[str]) -> None:
            for _, seed in zip(range(LINKS_MAX), seeds, strict=False):
                span.add_link(self.root(seed, workflow))

        try:
            with use_span(span, record_exception=False, set_status_on_exception=False):
                yield lambda seeds: _safely(link, seeds)
        except Exception as error:
            # Its text may contain arguments.
            kind = type(error).__qualname__
            span.set_status(StatusCode.ERROR, kind)
            span.set_attribute("error.type", kind)
            raise
        finally:
            _safely(span.end)

    async def flush(self, in_thread: Callable[..., Awaitable[Any]], seconds: float) -> None:
        """Send the ended spans, in a thread that `in_thread` calls a function in.

        Processes that Outlast ends do not reach the program's own flush.
        """
        flush = getattr(self._provider, "force_flush", None)
        if flush is None or seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await in_thread(flush, int(seconds * 1000))
        except Exception as error:
            # An exporter's failure must not delay the shutdown.
            log.warning("Could not send spans: %s", type(error).__name__)


class ExecutionSpan:
    """The span of one execution of a run. It creates the spans below it."""

    def __init__(self, spans: Spans, tracer: Tracer, execution: RunExecution) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context

        row = execution.row
        name = execution.workflow.name
        root = spans.root(row.seed, name)
        above = trace.set_span_in_context(trace.NonRecordingSpan(root), Context())
        self._trace_id = root.trace_id
        self._tracer = tracer
        self._span = tracer.start_span(
            f"run {name}",
            above,
            attributes=_attributes(execution, row),
            links=self._parent_of(spans, execution),
        )
        self._context = trace.set_span_in_context(self._span, Context())

    @staticmethod
    def _parent_of(spans: Spans, execution: RunExecution) -> list[Any]:
        """Return a link from a child run's execution to its parent's trace.

        The engine knows the parent's row if the parent executes here, or has read it.
        """
        from opentelemetry.trace import Link

        parent = execution.trace.parent
        return [] if parent is None else [Link(spans.root(parent.seed, parent.workflow))]

    def enter(self) -> None:
        """Make this the current span, in the run's own context."""
        from opentelemetry.context import attach

        attach(self._context)

    async def around(self, body: StepExecution, work: Callable[[], Awaitable[T]]) -> T:
        """Execute a step's body in its own current span.

        `work` is called here, so that its awaitable is never left unawaited.
        """
        from opentelemetry import trace
        from opentelemetry.context import attach, detach

        kind = "compensation" if body.is_compensation else "effect" if body.is_effect else "step"
        span = _safely(self._tracer.start_span, f"{kind} {body.name}", self._above())
        if span is None:
            return await work()
        token = attach(trace.set_span_in_context(span))
        raised: BaseException | None = None
        try:
            return await work()
        except BaseException as error:
            raised = error
            raise
        finally:
            detach(token)
            _safely(self._end_step, span, body, raised)
            # Its traceback refers to this frame.
            del raised

    def _above(self) -> Context:
        """Return the current context if it belongs to this trace, otherwise the execution's.

        The workflow may have created its own spans.
        """
        from opentelemetry import context, trace

        current = context.get_current()
        is_ours = trace.get_current_span(current).get_span_context().trace_id == self._trace_id
        return current if is_ours else self._context

    def _end_step(self, span: Span, body: StepExecution, raised: BaseException | None) -> None:
        execution = body.execution
        span.set_attributes(
            {
                "outlast.run": execution.id,
                "outlast.fence": execution.fence,
                "outlast.attempt": body.attempt,
            }
        )
        # The key of an inner step contains arguments.
        if body.kind != "inner":
            span.set_attribute("outlast.key", body.key)
        end = body.how
        if body.kind == "inner":
            # The outer step handles its outcome.
            end = "done" if raised is None else "failed" if isinstance(raised, Exception) else None
        if isinstance(raised, Evicted):
            end = None
        # An interruption is not the step's error. What its last attempt raised is.
        if raised is None or end is None:
            error = _type_of(body.error_text)
        else:
            error = type(raised).__qualname__
        _end(span, end or "interrupted", error)

    def end(self, reason: EndReason | None, outcome: RunOutcome) -> None:
        """End the span of the execution."""
        _safely(_end, self._span, outcome.label, _error_of(reason, outcome))


def _safely(make: Callable[..., T], *args: Any) -> T | None:
    """Call a function, and log an error instead of raising it.

    Samplers and processors belong to the program. Their faults must not affect a run.
    """
    try:
        return make(*args)
    except Exception as error:
        log.warning("Could not start or end a span: %s", type(error).__name__)
        return None


def _attributes(execution: RunExecution, row: RunRow) -> dict[str, Any]:
    attributes = {
        "outlast.run": row.id,
        "outlast.workflow": execution.workflow.name,
        "outlast.queue": row.queue,
        "outlast.life": row.lives,
        "outlast.fence": row.fence,
        "outlast.worker": row.worker or "",
        "outlast.undoing": execution.undoing,
    }
    cause = execution.trace.cause
    return attributes if cause is None else {**attributes, "outlast.cause": cause}


def _error_of(reason: EndReason | None, outcome: RunOutcome) -> str | None:
    """Return the type of the error that ended the execution, or None.

    For a parked run that is the error its waiters get, and for a lost one the cause of the loss.
    """
    if outcome.kind is OutcomeKind.PARKED:
        if reason is not None and reason.kind is EndKind.DIVERGED:
            return format_error(reason.error, 0)
        return format_error(RunParked("", ""), 0)
    if outcome.error is not None:
        return _type_of(outcome.error)
    if outcome.kind is OutcomeKind.HUNG and reason is not None:
        return format_error(reason.error, 0)
    if outcome.kind is OutcomeKind.LOST:
        return format_error(outcome.cause or Evicted(""), 0)
    return None


def _end(span: Span, end: str, error: str | None) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("outlast.end", end)
    if end == "cancelled":
        # A cancellation was requested, so it is not an error.
        error = None
    if error is not None or end in ("failed", "parked", "lost"):
        span.set_status(StatusCode.ERROR, error)
    elif end == "done":
        span.set_status(StatusCode.OK)
    if error is not None:
        span.set_attribute("error.type", error)
    span.end()


def _type_of(error: str | None) -> str | None:
    """Return the type of a recorded error."""
    return None if error is None or error == CANCELLED else parts_of_error(error)[0]
