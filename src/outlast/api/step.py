"""Define `@step`: a call inside a run whose result is recorded once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from outlast.api.definition_checks import NAME_LENGTH_MAX, check_known_options, checked_name
from outlast.codec.error_codec import ErrorCodec
from outlast.codec.identifiers import check_name
from outlast.codec.signature import NOT_GIVEN, Signature
from outlast.errors import NotInRun, SettingsError
from outlast.execution import step_runner
from outlast.execution.calls import make_awaitable
from outlast.execution.definitions import RetryOn, StepDefinition
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY, StepExecution
from outlast.execution.threads import THREAD

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")

Awaits = Coroutine[None, None, R]
"""The type that calling a step returns.

With `Coroutine[Any, Any, R]`, mypy infers Any for a `gather` of several types.
"""

OPTIONS = (
    "name", "retries", "backoff", "backoff_max", "retry_on", "timeout", "errors", "returns",
)  # fmt: skip


class StepBase(StepDefinition, Generic[P, R]):
    """The base of async and sync steps. Call `fn`, the plain function, outside a run."""

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        name: str | None = None,
        retries: int = 0,
        backoff: float = 1.0,
        backoff_max: float = 60.0,
        retry_on: RetryOn = Exception,
        timeout: float | None = None,
        errors: ErrorCodec | None = None,
        returns: Any = NOT_GIVEN,
    ) -> None:
        options: dict[str, Any] = {
            "retries": retries,
            "backoff": backoff,
            "backoff_max": backoff_max,
            "timeout": timeout,
        }
        name = checked_name(fn, name, self.kind, options)
        _check_error_codec(errors, name)
        signature = Signature(fn, returns)
        StepDefinition.__init__(
            self, fn, name, retry_on=retry_on, errors=errors, signature=signature, **options
        )

    def _call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], key: str | None = None
    ) -> Coroutine[Any, Any, R]:
        """Reserve the step's call site now and return an awaitable that executes the step.

        The call site has the explicit `key` if there is one.
        """
        loop = asyncio._get_running_loop()
        if type(loop) is RunLoop:
            execution = loop.execution
            self.signature.returns()
            call_site = execution.calls.reserve(
                "step", self.key_part, self.signature.fingerprint(args, kwargs), key=key
            )
            call_site.codec = self.signature.returns
            call_site.errors = self.errors
            if call_site.key not in execution.journal.placed:
                # Copy now: the workflow may change its arguments before the body begins.
                args, kwargs = self.signature.copied(args, kwargs)
            return make_awaitable(
                execution,
                call_site,
                partial(step_runner.launch, step=self, args=args, kwargs=kwargs),
            )
        body = BODY.get()
        if body is not None:
            return self._within(body, args, kwargs)
        self._check_colour()
        raise NotInRun(
            f"step {self.name} was called outside a run. Call it from a workflow, or call its "
            f"plain function: {self.name}.fn(...)."
        )

    def _check_colour(self) -> None:
        """Raise NotInRun where a sync workflow calls something that must be awaited.

        The call is in a run, but a sync workflow cannot await.
        """
        if THREAD.get() is None:
            return
        if isinstance(self, SyncStep):
            raise refused(
                NotInRun(
                    f"{self.name}.aio() is for async workflows and this workflow is sync: use "
                    f"`{self.name}(...)`."
                )
            )
        raise refused(
            NotInRun(
                f"{self.kind} {self.name} is async and this workflow is sync: make it a plain "
                "function, or call it in an async workflow (here as a child, "
                "`outlast.sync.run(call)`)."
            )
        )

    def _within(
        self, body: StepExecution, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, R]:
        """Return the awaitable of a step that is called in a step's body.

        Raise NotInRun in the body of an effect.
        """
        if body.is_effect:
            raise NotInRun(
                f"step {self.name} was called in the body of an effect, which is one act. Call it "
                f"before or after, or call its plain function: {self.name}.fn(...)."
            )
        return step_runner.inner(body, self, args, kwargs)


class Step(StepBase[P, R]):
    """An async step: `await s(...)`.

    Its result is recorded once. Every later life returns the recorded result.
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaits[R]:
        return self._call(args, kwargs)

    def keyed(self, key: str) -> Callable[P, Awaits[R]]:
        """Return the step under an explicit key: `await call_tool.keyed(call_id)(args)`.

        The call is recorded under the step's name and this key, whichever task makes it, and in
        whichever order. Calls with an equal key in one scope are numbered. In a step's body the key
        has no effect.
        """
        check_name(key, NAME_LENGTH_MAX, "key")
        return lambda *args, **kwargs: self._call(args, kwargs, key)

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Step[P, R]: ...
    @overload
    def __get__(
        self: Step[Concatenate[S, Q], R], instance: S, owner: type[Any]
    ) -> BoundStep[Q, R]: ...
    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        return self if instance is None else BoundStep(self, instance)


class SyncStep(StepBase[P, R]):
    """A sync step: `s(...)` in a sync run, `await s.aio(...)` in an async one.

    In an async run it executes in a thread.
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_sync()
        return self._call_sync(args, kwargs)

    def _check_sync(self) -> None:
        if asyncio._get_running_loop() is not None:
            raise refused(
                NotInRun(
                    f"{self.kind} {self.name} is sync and this code is async: use "
                    f"`await {self.name}.aio(...)`."
                )
            )

    def _call_sync(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], key: str | None = None
    ) -> R:
        thread = THREAD.get()
        if BODY.get() is None and thread is not None:
            return cast("R", thread.call(lambda: self._call(args, kwargs, key)))
        body = BODY.get()
        if body is not None:
            inner = self._within(body, args, kwargs)
            return asyncio.run_coroutine_threadsafe(inner, body.execution.host).result()
        # This raises NotInRun with a hint.
        return asyncio.run(self._call(args, kwargs))

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Awaits[R]:
        """Call the step in an async run."""
        return self._call(args, kwargs)

    def keyed(self, key: str) -> KeyedSyncStep[P, R]:
        """Return the step under an explicit key: `fetch.keyed(call_id)(url)`.

        See `Step.keyed`. In an async run, use `await fetch.keyed(call_id).aio(url)`.
        """
        check_name(key, NAME_LENGTH_MAX, "key")
        return KeyedSyncStep(self, key)

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> SyncStep[P, R]: ...
    @overload
    def __get__(
        self: SyncStep[Concatenate[S, Q], R], instance: S, owner: type[Any]
    ) -> BoundSyncStep[Q, R]: ...
    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        return self if instance is None else BoundSyncStep(self, instance)


class KeyedSyncStep(Generic[P, R]):
    """A sync step under an explicit key."""

    def __init__(self, step: SyncStep[P, R], key: str) -> None:
        self._step, self._key = step, key

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        self._step._check_sync()
        return self._step._call_sync(args, kwargs, self._key)

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Awaits[R]:
        return self._step._call(args, kwargs, self._key)


class BoundStep(Generic[P, R]):
    """A step as a method of an object. The object is not part of the call's identity."""

    def __init__(self, step: Step[..., R], instance: Any) -> None:
        self._step, self._instance = step, instance

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaits[R]:
        return self._step(self._instance, *args, **kwargs)


class BoundSyncStep(Generic[P, R]):
    """A sync step as a method of an object."""

    def __init__(self, step: SyncStep[..., R], instance: Any) -> None:
        self._step, self._instance = step, instance

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._step(self._instance, *args, **kwargs)

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Awaits[R]:
        return self._step.aio(self._instance, *args, **kwargs)


@overload
def step(  # type: ignore[overload-overlap]
    fn: Callable[P, Coroutine[Any, Any, R]], /
) -> Step[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> SyncStep[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    backoff_max: float = 60.0,
    retry_on: RetryOn = Exception,
    timeout: float | None = None,
    errors: ErrorCodec | None = None,
    returns: Any = ...,
) -> _Decorator: ...
def step(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a step: `@step`, or `@step(retries=3, timeout=30)`.

    - `retries`: further attempts after the first fails. The delay starts at `backoff` seconds and
      doubles up to `backoff_max`, with jitter. The count is durable: a restart does not reset it.
    - `retry_on`: the exceptions that are retried.
    - `timeout`: seconds for one attempt. A longer one raises StepTimeout.
    - `name`: the name that it is recorded under. The default is the function's qualified name.
    - `errors`: an object with `encode(error)` and `decode(data)`, for errors that do not come back
      as themselves. See ErrorCodec.
    - `returns`: the type of the result, if the function has no annotation for it, as a closure.
    """
    if fn is not None:
        return _make(fn)
    check_known_options("step", options, OPTIONS)
    return lambda fn: _make(fn, **options)


def _check_error_codec(errors: Any, name: str) -> None:
    for method in ("encode", "decode"):
        if errors is not None and not callable(getattr(errors, method, None)):
            raise SettingsError(
                f"errors of step {name} must have the methods encode(error) and decode(data), and "
                f"{errors!r} has no {method}."
            )


def _make(fn: Callable[..., Any], **options: Any) -> Any:
    kind = Step if inspect.iscoroutinefunction(fn) else SyncStep
    return kind(fn, **options)


class _Decorator:
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Step[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncStep[P, R]: ...
    def __call__(self, fn: Any, /) -> Any: ...
