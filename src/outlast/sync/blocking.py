"""Turn the methods of an async object into blocking methods of its sync counterpart."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from outlast.sync.portal import Portal
from outlast.sync.run_handle import AwaitedRun, Run

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")

Method = Callable[Concatenate[A, P], Coroutine[Any, Any, R]]
"""A method of an async object."""


class SyncObject(Protocol[A_co]):
    """An object for sync programs that calls an async one through a portal."""

    @property
    def _open(self) -> Portal:
        """Return the portal. Raise OutlastError if the object is not open."""
        ...

    @property
    def _async(self) -> A_co: ...


def blocking(method: Method[A, P, R]) -> Callable[Concatenate[SyncObject[A], P], R]:
    """Return the blocking version of an async method."""

    @functools.wraps(method)
    def call(self: SyncObject[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._open.call(method, self._async, *args, **kwargs)

    return call


@overload
def giving_runs(
    method: Method[A, P, AwaitedRun[R]],
) -> Callable[Concatenate[SyncObject[A], P], Run[R]]: ...
@overload
def giving_runs(
    method: Method[A, P, Sequence[AwaitedRun[R]]],
) -> Callable[Concatenate[SyncObject[A], P], list[Run[R]]]: ...
def giving_runs(method: Method[A, P, Any]) -> Callable[Concatenate[SyncObject[A], P], Any]:
    """Return the blocking version of a method, with sync runs in place of async ones."""
    wait = blocking(method)

    @functools.wraps(method)
    def call(self: SyncObject[A], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        answer = wait(self, *args, **kwargs)
        if isinstance(answer, list):
            return [Run(self._open, run) for run in answer]
        return Run(self._open, answer)

    return call
