"""Define `@effect`: a step that changes the outside world.

An intent is recorded before the effect acts, so that a death in between is not forgotten. `verify`
then determines whether it happened, and `compensate` reverses it.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, overload

from outlast.api.context import _workflow
from outlast.api.definition_checks import check_known_options, checked_name
from outlast.api.effect_checks import (
    check_compensation,
    check_failed_on,
    check_verify,
    key_name,
)
from outlast.api.step import Step, StepBase, SyncStep
from outlast.errors import NotInRun, SettingsError
from outlast.execution import compensation as undo
from outlast.execution import effect_launch
from outlast.execution.definitions import EffectDefinition
from outlast.execution.effect_call import (
    KEY,
    EffectCall,
    EffectSource,
    Happened,
    know,
    know_source,
)
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY, StepExecution

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")

__all__ = [
    "KEY",
    "Effect",
    "EffectBase",
    "EffectSource",
    "Happened",
    "SyncEffect",
    "compensate_with",
    "effect",
    "know_source",
]

COMPENSATION_RETRIES = 5
OPTIONS = (
    "timeout",
    "name",
    "retries",
    "backoff",
    "backoff_max",
    "failed_on",
    "idempotent",
    "undo",
)

_NEEDED: Any = object()


class EffectBase(StepBase[P, R], EffectDefinition):
    """The base of async and sync effects."""

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        timeout: float,
        name: str | None = None,
        retries: int = 0,
        backoff: float = 1.0,
        backoff_max: float = 60.0,
        failed_on: type[BaseException] | tuple[type[BaseException], ...] = (),
        idempotent: bool = False,
        undo: None = _NEEDED,
    ) -> None:
        options: dict[str, Any] = {
            "retries": retries,
            "backoff": backoff,
            "backoff_max": backoff_max,
            "timeout": timeout,
        }
        name = checked_name(fn, name, self.kind, options)
        if timeout is None or not 0 < timeout < math.inf:
            raise SettingsError(
                f"effect {name} needs a timeout in seconds. After a crash, its call may still be "
                "in flight for that long."
            )
        if undo not in (None, _NEEDED):
            raise SettingsError(
                f"@effect(undo=...) accepts only None. To give effect {name} a compensation, "
                f"decorate a function with @{name}.compensate."
            )
        EffectDefinition.__init__(
            self,
            fn,
            name,
            failed_on=check_failed_on(name, failed_on),
            idempotent=bool(idempotent),
            undo_needed=undo is not None,
            key_name=key_name(fn),
            **options,
        )
        if self.signature.is_method:
            raise TypeError(
                f"effect {name} is a method: after a death it is found by its name, without an "
                "object. Make it a function."
            )
        know(self)

    @overload
    def verify(
        self, fn: Callable[Q, Coroutine[Any, Any, Happened[R] | None]], /
    ) -> Callable[Q, Coroutine[Any, Any, Happened[R] | None]]: ...
    @overload
    def verify(self, fn: Callable[Q, Happened[R] | None], /) -> Callable[Q, Happened[R] | None]: ...
    def verify(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Decorate the function that determines whether the effect happened.

        It returns `Happened(result)`, or None if the effect did not happen. Raising means unknown.
        It takes the key and any of the effect's parameters, by name. Outlast calls it when a death,
        a time-out or an exception left the outcome open, only after the act can no longer be in
        flight, and under the effect's `timeout`.
        """
        check_verify(self.name, self.fn, fn)
        self.verifier = fn
        self.verify_key = key_name(fn)
        self.verify_names = frozenset(inspect.signature(fn).parameters)
        return fn

    @overload
    def compensate(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[R, Q], Coroutine[Any, Any, S]], /
    ) -> Effect[Concatenate[R, Q], S]: ...
    @overload
    def compensate(
        self, fn: Callable[Concatenate[R, Q], S], /
    ) -> SyncEffect[Concatenate[R, Q], S]: ...
    @overload
    def compensate(
        self,
        *,
        timeout: float = ...,
        name: str | None = None,
        retries: int = COMPENSATION_RETRIES,
        backoff: float = 1.0,
        backoff_max: float = 60.0,
        failed_on: type[BaseException] | tuple[type[BaseException], ...] = (),
        idempotent: bool = True,
    ) -> _Compensation[R]: ...
    def compensate(self, *fn: Any, **options: Any) -> Any:
        """Decorate the function that reverses the effect.

        Outlast calls it when the run fails, is cancelled or abandoned, or when an exception leaves
        the effect's unit. It takes the effect's result, then the effect's parameters that it names.
        `effect_key` is the effect's key, and `key: str = KEY` its own. It is an effect itself, with
        the options of `@effect`. By default it is idempotent, has five retries and the effect's
        timeout.
        """
        if not fn:
            return lambda fn: self._compensate(fn, options)
        return self._compensate(fn[0], options)

    def _compensate(self, fn: Callable[..., Any], options: dict[str, Any]) -> Any:
        if not self.undo_needed:
            raise TypeError(
                f"effect {self.name} says undo=None, that it needs no compensation: "
                "remove one of the two."
            )
        check_known_options("compensate", options, OPTIONS[:-1])
        check_compensation(self.name, self.fn, fn)
        defaults: dict[str, Any] = {
            "timeout": self.timeout,
            "idempotent": True,
            "retries": COMPENSATION_RETRIES,
        }
        self.compensation = _make(fn, **{**defaults, **options, "undo": None})
        return self.compensation

    def _call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], key: str | None = None
    ) -> Coroutine[Any, Any, R]:
        loop = asyncio._get_running_loop()
        if type(loop) is not RunLoop:
            if BODY.get() is not None:
                self._inside()
            self._check_colour()
            own_key = "" if self.key_name is None else f", {self.key_name}=A_KEY_OF_YOURS"
            raise NotInRun(
                f"effect {self.name} was called outside a run. Call it from a workflow, or call "
                f"its plain function: {self.name}.fn(...{own_key})."
            )
        self.signature.returns()
        return effect_launch.call(loop.execution, EffectCall(self, args, kwargs), key)

    def _within(
        self,
        body: StepExecution,  # noqa: ARG002
        args: tuple[Any, ...],  # noqa: ARG002
        kwargs: dict[str, Any],  # noqa: ARG002
    ) -> NoReturn:
        self._inside()

    def _inside(self) -> NoReturn:
        body = BODY.get()
        what = "an effect" if body is not None and body.is_effect else "a step"
        raise NotInRun(
            f"effect {self.name} was called in the body of {what}. A body is not deterministic, "
            "so after a crash Outlast could not tell which of its effects happened. Call the "
            "effect in the workflow's code."
        )


class Effect(EffectBase[P, R], Step[P, R]):
    """An async effect: `await e(...)`. Its intent is recorded before it acts, its outcome after."""


class SyncEffect(EffectBase[P, R], SyncStep[P, R]):
    """A sync effect: `e(...)` in a sync run, `await e.aio(...)` in an async one.

    In an async run it executes in a thread.
    """


@overload
def compensate_with(
    effect: Effect[P, Any], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[None, None, None]: ...
@overload
def compensate_with(
    effect: SyncEffect[P, Any], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[None, None, None]: ...
def compensate_with(effect: Any, /, *args: Any, **kwargs: Any) -> Coroutine[None, None, None]:
    """Register `effect` to be called with these arguments if the run is compensated.

    Use it in a workflow: `await compensate_with(release, lock_id)`. The registration is durable
    when this returns, and takes its place in the order of compensation. In a sync workflow it is a
    plain call (`outlast.sync`). It is also allowed while the run is being cancelled.
    """
    if inspect.iscoroutine(effect):
        effect.close()
        raise TypeError(
            "compensate_with takes the effect uncalled, then its arguments: compensate_with(fx, 1)."
        )
    if not isinstance(effect, EffectBase):
        raise TypeError(
            f"compensate_with takes an effect, which can be found again after a death, not "
            f"{effect!r}: decorate it with @effect(timeout=...)."
        )
    execution = _workflow("compensate_with")
    return undo.register(execution, EffectCall(effect, args, kwargs))


@overload
def effect(
    *,
    timeout: float,
    name: str | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    backoff_max: float = 60.0,
    failed_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    idempotent: bool = False,
    undo: None = ...,
) -> _Decorator: ...
@overload
def effect(fn: Callable[..., Any], /) -> NoReturn: ...
def effect(fn: Any = None, /, **options: Any) -> Any:
    """Make a function an effect: `@effect(timeout=30)`.

    Outlast records an intent before the effect acts, and its outcome afterwards.

    - `timeout`: seconds for one act. After a death, Outlast verifies or repeats nothing until the
      time-out and `effect_margin` have passed.
    - `failed_on`: exceptions that prove that the effect did not happen. `Exception` is refused,
      because it covers every error. Any other exception, and a time-out, leave the outcome open.
    - `retries`: further acts after an exception in `failed_on`. The delay starts at `backoff`
      seconds and doubles up to `backoff_max`, with jitter.
    - `idempotent`: the other side acts only once per key, so the effect may be called again when
      its outcome is unknown.
    - `undo=None`: the effect needs no compensation. Otherwise add one with `@fx.compensate`. A unit
      refuses an effect that has neither.
    - `name`: the name that it is recorded under. The default is the function's qualified name.

    An open outcome is settled by `@fx.verify`, else by `idempotent`, else by a person
    (`outlast decide`).
    """
    if fn is not None:
        name = getattr(fn, "__name__", "it")
        raise SettingsError(f"effect {name} needs a timeout: @effect(timeout=30).")
    check_known_options("effect", options, OPTIONS)
    if "timeout" not in options:
        raise SettingsError("an effect needs a timeout: @effect(timeout=30).")
    return lambda fn: _make(fn, **options)


def _make(fn: Callable[..., Any], **options: Any) -> Any:
    kind = Effect if inspect.iscoroutinefunction(fn) else SyncEffect
    return kind(fn, **options)


class _Decorator:
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Effect[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncEffect[P, R]: ...
    def __call__(self, fn: Any, /) -> Any: ...


class _Compensation(Generic[R]):
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[R, Q], Coroutine[Any, Any, S]], /
    ) -> Effect[Concatenate[R, Q], S]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[R, Q], S], /
    ) -> SyncEffect[Concatenate[R, Q], S]: ...
    def __call__(self, fn: Any, /) -> Any: ...
