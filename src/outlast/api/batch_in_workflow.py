"""Provide `each` and `map` inside a run: every life sees the same items, then the new ones."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from outlast.api.context import _workflow
from outlast.api.step import Awaits, Step
from outlast.codec.codecs import codec_for
from outlast.errors import Draining, Evicted, LeaseLost, StoreError
from outlast.execution.call_site import child_id
from outlast.execution.execution_state import EndReason
from outlast.execution.step_execution import BODY

if TYPE_CHECKING:
    from outlast.api.item_source import ItemSource, Keys
    from outlast.execution.run_execution import RunExecution

T = TypeVar("T")
R = TypeVar("R")


def each(
    items: Iterable[T] | AsyncIterable[T], *, id: str = "", key: Callable[[T], str] | None = None
) -> AsyncIterator[T]:
    """Iterate over items one by one, in a workflow.

    Each item is recorded as plain JSON when the loop gets it, so that later lives get the same
    items in the same order. New items come after them. The items are read where steps execute, on
    the program's event loop. `key` identifies an item; text and whole numbers are their own keys.
    `id` names the loop in the journal.
    """
    return InsideEach(_workflow("each"), items, f"each:{id}" if id else "each", key)


class InsideEach(AsyncIterator[T], Generic[T]):
    """The loop of `each` in a workflow. Each item is a step."""

    def __init__(
        self,
        execution: RunExecution,
        items: Iterable[T] | AsyncIterable[T],
        name: str,
        key: Callable[[T], str] | None,
    ) -> None:
        self._host = execution.host
        self._reader = _Reader(items, key, execution.services.settings.id_length_max)
        self._step: Step[[], Any] = Step(self._reader.next, name=name)
        # The time to the next item says nothing about the step, and there are many names.
        self._step.is_measured = False
        self._ended = False

    def __aiter__(self) -> InsideEach[T]:
        return self

    async def __anext__(self) -> T:
        found = None if self._ended else await self._step()
        if found is None:
            self._ended = True
            raise StopAsyncIteration
        key, item = found
        self._reader.given.add(key)
        value: T = item
        return value

    def __del__(self) -> None:
        pull = self._reader.pull
        if pull is not None:
            # The host's loop is closed.
            with suppress(RuntimeError):
                self._host.call_soon_threadsafe(pull.close)


class _Reader(Generic[T]):
    """Read the items on the host's loop.

    This is not the iterator itself, which must be collected as soon as its loop is left.
    """

    def __init__(
        self, items: Iterable[T] | AsyncIterable[T], key: Callable[[T], str] | None, length_max: int
    ) -> None:
        self._items, self._key, self._length_max = items, key, length_max
        self.pull: ItemSource[T] | None = None
        self._keys: Keys[T] | None = None
        self.given: set[str] = set()
        """The keys of the items handed out, in this life or an earlier one."""
        self._ahead: tuple[str, T] | None = None
        """The last item that was read. A cancelled step may not have handed it out."""

    async def next(self) -> Any:
        """Return the next item that was not handed out before, with its key; None at the end.

        This is the body of a step.
        """
        from outlast.api.item_source import Keys, pulling

        if self.pull is None or self._keys is None:
            self.pull, self._keys = pulling(self._items), Keys(self._key, self._length_max)
        while self._ahead is None or self._ahead[0] in self.given:
            found = await self.pull.pull(1)
            if not found:
                return None
            self._ahead = self._keys.of(found[0]), found[0]
        return list(self._ahead)


@overload
def map(
    fn: Callable[[T], Awaitable[R]],
    items: Iterable[T] | AsyncIterable[T],
    *,
    id: str = "",
    key: Callable[[T], str] | None = None,
    concurrency: int | None = None,
) -> Awaits[dict[str, R]]: ...
@overload
def map(
    fn: Callable[[T], R],
    items: Iterable[T] | AsyncIterable[T],
    *,
    id: str = "",
    key: Callable[[T], str] | None = None,
    concurrency: int | None = None,
) -> Awaits[dict[str, R]]: ...
def map(
    fn: Callable[[Any], Any],
    items: Iterable[Any] | AsyncIterable[Any],
    *,
    id: str = "",
    key: Callable[[Any], str] | None = None,
    concurrency: int | None = None,
) -> Awaits[dict[str, Any]]:
    """Call a function for every item, as one step of a workflow.

    The result is a dict by item key. At most `concurrency` calls run at once. Results are recorded
    item by item: when the step is repeated after a death, a drain or a failure, only the remaining
    items are processed. A plain function is called in a thread.
    """
    from outlast.api.map import MapJob, returned_by

    execution = _workflow("map")
    from outlast.engine.execution_services import services_of

    services = services_of(execution)

    async def body() -> Any:
        this = BODY.get()
        assert this is not None
        child = child_id(execution.id, this.key, services.settings.id_length_max)
        mapping = MapJob(
            services, fn, items, id=child, key=key, concurrency=concurrency, parent=execution.id
        )
        try:
            return await mapping.results()
        except Draining as draining:
            # An interruption is not a failure.
            raise Evicted(f"drain: {services.shutdown.reason}") from draining
        except LeaseLost as gone:
            execution.stop(EndReason.lost(str(gone)))
            raise Evicted(str(gone)) from gone
        except StoreError as error:
            execution.stop(EndReason.write_failed(error))
            raise Evicted(str(error)) from error

    step: Step[[], dict[str, Any]] = Step(body, name=f"map:{id}" if id else "map")
    step.is_measured = False
    step.signature._returns = codec_for(dict[str, returned_by(fn)])  # type: ignore[misc]
    return step()
