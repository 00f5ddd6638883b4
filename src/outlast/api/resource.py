"""Define `@resource`: something that the steps of one execution open once and share."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from outlast.api.definition_checks import default_name
from outlast.errors import NotInRun
from outlast.execution.progress import body_of

if TYPE_CHECKING:
    from outlast.execution.resources import Resources
    from outlast.execution.step_execution import StepExecution

P = ParamSpec("P")
T = TypeVar("T")


class ResourceBase(Generic[P, T]):
    """The base of async and sync resources. `fn` is the plain generator function."""

    def __init__(self, fn: Callable[P, Any]) -> None:
        self.fn = fn
        self.name = default_name(fn, None, "resource")
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__
        self.__wrapped__ = fn
        self._signature = inspect.signature(fn)

    def _open(
        self, step: StepExecution, *args: P.args, **kwargs: P.kwargs
    ) -> AbstractAsyncContextManager[T]:
        raise NotImplementedError

    async def _get(self, step: StepExecution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        key = self._key(args, kwargs)
        open = partial(self._open, step, *args, **kwargs)
        resources = _resources(step)
        value: T = await resources.get(key, self.name, open)
        return value

    async def _close(
        self, step: StepExecution, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        await _resources(step).close(self._key(args, kwargs))

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        key = (self, *bound.arguments.items())
        try:
            hash(key)
        except TypeError:
            raise TypeError(
                f"the arguments of resource {self.name} identify it, so they must be hashable: "
                f"{dict(bound.arguments)!r}."
            ) from None
        return key

    def __repr__(self) -> str:
        return f"<resource {self.name}>"


class Resource(ResourceBase[P, T]):
    """An async resource: `page = await browser()` in a step's body."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the resource of these arguments, and open it first if no step has."""
        return await self._get(self._step(), args, kwargs)

    async def close(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Close the resource of these arguments now. The next call opens it again.

        For a resource that has failed, such as a lost connection.
        """
        await self._close(self._step(), args, kwargs)

    def _step(self) -> StepExecution:
        step = body_of(self.name)
        if asyncio._get_running_loop() is not step.execution.host:
            raise NotInRun(
                f"resource {self.name} is async and this step is sync: make the resource a plain "
                "generator function, or the step async."
            )
        return step

    def _open(
        self,
        step: StepExecution,  # noqa: ARG002 - for sync resources
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> AbstractAsyncContextManager[T]:
        return asynccontextmanager(self.fn)(*args, **kwargs)


class SyncResource(ResourceBase[P, T]):
    """A sync resource: `browser()` in a sync step, `await browser.aio()` in an async one.

    It is opened and closed in threads of Outlast, which may differ from the steps' threads.
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the resource of these arguments, and open it first if no step has."""
        step = self._step()
        return asyncio.run_coroutine_threadsafe(
            self._get(step, args, kwargs), step.execution.host
        ).result()

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the resource in an async step."""
        return await self._get(body_of(self.name), args, kwargs)

    def close(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Close the resource of these arguments now. The next call opens it again."""
        step = self._step()
        asyncio.run_coroutine_threadsafe(
            self._close(step, args, kwargs), step.execution.host
        ).result()

    def _step(self) -> StepExecution:
        step = body_of(self.name)
        if asyncio._get_running_loop() is not None:
            raise NotInRun(
                f"resource {self.name} is sync and this code is async: use "
                f"`await {self.name}.aio(...)`."
            )
        return step

    @asynccontextmanager
    async def _open(
        self, step: StepExecution, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[T]:
        in_thread = step.execution.services.steps.in_thread
        manager = contextmanager(self.fn)(*args, **kwargs)
        value = await in_thread(manager.__enter__)
        try:
            yield value
        finally:
            await in_thread(manager.__exit__, None, None, None)


def _resources(step: StepExecution) -> Resources:
    """Return the resources of the step's execution. Raise if that has stopped."""
    step.execution.check_active()
    return step.execution.steps.resources


@overload
def resource(fn: Callable[P, AsyncIterator[T]], /) -> Resource[P, T]: ...
@overload
def resource(fn: Callable[P, Iterator[T]], /) -> SyncResource[P, T]: ...
def resource(fn: Callable[..., Any], /) -> Any:
    """Make a generator function a resource: opened once per execution of a run, and shared.

        @resource
        async def browser() -> AsyncIterator[Browser]:
            async with launch() as opened:
                yield opened

        @step
        async def read(url: str) -> str:
            return await (await browser()).text(url)

    The first step that asks opens it. Later steps of the same execution get the same object, one
    per arguments. It is closed when the execution ends: because the run has ended, waits or is
    released to another worker. Nothing is recorded, so a run that continues elsewhere opens its
    own. Use it in the bodies of steps and effects.
    """
    if inspect.isasyncgenfunction(fn):
        return Resource(fn)
    if inspect.isgeneratorfunction(fn):
        return SyncResource(fn)
    raise TypeError(
        f"@resource decorates a generator function, which yields the open resource once, not "
        f"{fn!r}."
    )
