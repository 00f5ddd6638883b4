"""Publish the values of a step to a stream of its run while the step executes.

Publishing costs the step almost nothing. Values are gathered and written together, at most once
per `publish_interval`. They are fenced by the claim and by a number of the attempt.

What one step has published to one stream is its part. An attempt replaces what an earlier one has
published, unless it resumes. The result of a step is recorded only when its part is durable, so a
text and the result that it belongs to always agree. If a write fails, the run is given up here and
the next execution repeats the step.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from outlast.codec import plain_json
from outlast.errors import Evicted, LimitExceeded
from outlast.execution import recording
from outlast.execution.calls import make_awaitable
from outlast.execution.recording import Enclosing
from outlast.execution.session_changes import fingerprint
from outlast.execution.step_execution import OVER, StepExecution
from outlast.execution.text_comparison import Comparison, TextComparison
from outlast.store.commands import Publish, Record

if TYPE_CHECKING:
    from outlast.execution.call_site import CallSite
    from outlast.execution.run_execution import RunExecution
    from outlast.store.stream_rows import PartRow

RESUMABLE_CHARACTERS_PER_SECOND = 100_000
"""The most characters per second that publishing a resumable stream saves as its progress.

The progress is the whole text. So the longer the text, the less often it is published.
"""


class Publisher:
    """Publish the values of one attempt of a step to one stream.

    Any thread may write. Everything else happens on the host loop.
    """

    __slots__ = (
        "_after",
        "_attempt",
        "_body",
        "_closed",
        "_comparison",
        "_ended",
        "_execution",
        "_in_flight",
        "_resumes",
        "_scheduled",
        "_size",
        "_stream",
        "_values",
        "_written_at",
        "before_flush",
    )

    def __init__(self, body: StepExecution, stream: str) -> None:
        self._body = body
        self._execution = body.execution
        self._stream = stream
        self._attempt = body.execution.steps.published.next_attempt()
        self._values: list[str] = []
        """Values that are not submitted yet, as JSON."""
        self._size = 0
        self._after = 0
        """How many values of the part are submitted, including those this attempt resumes from."""
        self._in_flight = 0
        self._scheduled = self._closed = False
        self._written_at = -1e9
        self._ended: asyncio.Future[None] | None = None
        """Done when everything is durable. It exists once something waits for that."""
        self._resumes = False
        """Whether this attempt continues the part of the earlier ones."""
        self._comparison: TextComparison | None = None
        """Decides whether this attempt continues their part. None if that is decided."""
        self.before_flush: Callable[[], None] | None = None
        """Saves the text of a resumable stream before it is published."""

    # -- writing

    def write(self, value: Any) -> None:
        """Publish a value. It is written soon.

        Raise Unrecordable if it is not plain JSON, LimitExceeded if the part becomes too long, and
        Evicted if this execution or attempt is over.
        """
        self._execution.check_active()
        if self._closed:
            raise _over()
        text = plain_json.encode(value)
        self._size += len(text)
        size_max = self._execution.services.settings.stream_size_max
        if self._size > size_max:
            what = f"what step {self._body.name} publishes to {self._stream}"
            raise LimitExceeded("stream_size_max", size_max, self._size, what)
        if self._comparison is None:
            self._values.append(text)
        else:
            ended = self._comparison.receive(value)
            if ended is None:
                return
            self._decide(self._comparison.count, ended)
        if not self._scheduled:
            self._scheduled = True
            self._on_loop(self._schedule)

    def _decide(self, earlier: int, ended: Comparison) -> None:
        """Continue or replace the part with the `earlier` values."""
        self._comparison = None
        if ended.continues:
            self._resumes, self._after = True, earlier
        self._values += map(plain_json.encode, ended.values)

    def resume(self, part: PartRow | None) -> None:
        """Continue what earlier attempts have published, as long as this one has the same text.

        Call it before the first `write`.
        """
        values = [] if part is None else json.loads(part.values)
        if values and all(isinstance(value, str) for value in values):
            self._comparison = TextComparison(values)

    @property
    def has_begun(self) -> bool:
        """Return whether anything was written, or is compared."""
        return bool(self._values or self._after or self._size or self._comparison is not None)

    def _on_loop(self, action: Callable[[], None]) -> None:
        if threading.get_ident() == self._execution.services.host_thread:
            action()
        else:
            try:
                self._execution.host.call_soon_threadsafe(action)
            except RuntimeError as closed:
                # The event loop is closed, and this execution has ended with it.
                raise _over() from closed

    # -- on the host loop

    @property
    def _interval(self) -> float:
        interval = self._execution.services.settings.publish_interval
        if self.before_flush is None:
            return interval
        return max(interval, self._size / RESUMABLE_CHARACTERS_PER_SECOND)

    def _schedule(self) -> None:
        """Flush now, or once the interval has passed since the last write."""
        self._scheduled = True
        pause = self._written_at + self._interval - self._execution.host.time()
        if pause <= 0:
            self.flush()
        else:
            self._execution.host.call_later(pause, self.flush)

    def flush(self) -> None:
        """Submit what was written. If a write is in flight, this happens after it."""
        if self._in_flight:
            # `_answered` calls this again.
            return
        # Reset the flag before reading the values: a thread that writes now schedules another.
        self._scheduled = False
        if self._values and not self._closed:
            self._submit(last=False)

    def _submit(self, *, last: bool) -> None:
        if self._execution.end_reason is not None:
            return
        if self.before_flush is not None:
            self.before_flush()
        # A thread may append meanwhile.
        count = len(self._values)
        values = tuple(self._values[:count])
        del self._values[:count]
        command = Publish(
            self._execution.pk,
            self._execution.fence,
            self._stream,
            self._body.key,
            self._attempt,
            self._after,
            values,
            self._resumes,
            last,
        )
        self._after += count
        self._in_flight += 1
        self._written_at = self._execution.host.time()
        recording.publish(self._execution, command, self._answered)

    def _answered(self, outcome: Any) -> None:
        self._in_flight -= 1
        if outcome is not None:
            return
        if self._closed:
            if self._ended is not None and not self._in_flight and not self._ended.done():
                self._ended.set_result(None)
        elif self._values:
            self._schedule()

    def abandon(self) -> None:
        """End a failed attempt. What it has written stays until the next attempt."""
        if self._closed:
            return
        self._closed = True
        if self._values:
            self._submit(last=True)

    async def finish(self) -> None:
        """End a successful attempt, and wait until its part is durable.

        Raise Evicted if this execution stops first.
        """
        self._closed = True
        if self._comparison is not None:
            self._decide(self._comparison.count, self._comparison.end())
        self._submit(last=True)
        self._execution.check_active()
        await self.until_durable()

    async def until_durable(self) -> None:
        """Wait until everything that a closed publisher has submitted is durable.

        If a write fails, the execution stops, which cancels the caller.
        """
        if self._in_flight:
            if self._ended is None:
                self._ended = self._execution.host.create_future()
            # Several may wait, and one of them may be cancelled.
            await asyncio.shield(self._ended)


def _over() -> Evicted:
    return Evicted("this attempt of the step has ended, so it can no longer publish")


_creating = threading.Lock()
"""Held while a publisher is created: several threads of a step may publish for the first time."""


def publisher_of(body: StepExecution, stream: str) -> Publisher:
    """Return the publisher of a step's attempt for a stream. Raise Evicted if it has ended."""
    owner, key = body.attempted, (body.key, stream)
    publisher = None if owner.publishers is None else owner.publishers.get(key)
    if publisher is None:
        with _creating:
            publishers = owner.own_publishers()
            if publishers is OVER:
                raise _over()
            publisher = publishers.get(key)
            if publisher is None:
                publisher = publishers[key] = Publisher(body, stream)
    return publisher


async def finish(body: StepExecution) -> None:
    """End what a successful attempt has published, and wait until it is durable.

    Remove what an earlier attempt has published to streams that this one has not used.
    """
    published = body.execution.steps.published
    mine = body.publishers or {}
    for stream in published.streams_of(body.key):
        if (body.key, stream) not in mine:
            publisher_of(body, stream)
    for publisher in body.end_publishing().values():
        await publisher.finish()
    published.forget(body.key)


def abandon(body: StepExecution) -> None:
    """End what a failed attempt has published."""
    for (writer, stream), publisher in body.end_publishing().items():
        publisher.abandon()
        body.execution.steps.published.add(writer, stream, publisher)


async def earlier_part(body: StepExecution, stream: str) -> PartRow | None:
    """Return what earlier attempts of a step have published to a stream."""
    execution = body.execution
    published = execution.steps.published
    if stream not in published.streams_of(body.key):
        return None
    last = published.last(body.key, stream)
    if last is not None:
        await last.until_durable()
    store = execution.services.store
    part: PartRow | None = await store.read(store.backend.part, execution.pk, stream, body.key)
    return part


# -- in a workflow's own code


def publish_in_run(execution: RunExecution, stream: str, value: Any) -> Coroutine[Any, Any, None]:
    """Reserve a call site that publishes a value, and return a coroutine that waits for it.

    The value and the entry are written together, so a replay publishes nothing.
    """
    text = plain_json.encode(value)
    execution.services.check_size(text, f"what is published to {stream}")
    call_site = execution.calls.reserve("publish", "publish", fingerprint(stream, value))
    call_site.codec = _NoValue
    return make_awaitable(execution, call_site, partial(_record, stream=stream, text=text))


def _record(execution: RunExecution, call_site: CallSite, stream: str, text: str) -> None:
    def command(record: Record) -> Publish:
        return Publish(
            execution.pk, execution.fence, stream, call_site.key,
            attempt=execution.steps.published.next_attempt(), after=0, values=(text,),
            record=record._replace(value="null"),
        )  # fmt: skip

    within = Enclosing(command, lambda outcome: "null" if outcome is None else None)
    recording.record(execution, "publish", call_site.key, call_site.args, within=within)


class _NoValue:
    """The codec of the entry of a publication."""

    decode = staticmethod(plain_json.decode)
