"""`Session` and `Checkpoint` for sync programs, workflows and steps: the async ones, blocking."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import EllipsisType
from typing import Any, TypeVar, overload

from outlast.api import checkpoint as core_checkpoint
from outlast.api import session as core
from outlast.api.session import SessionInfo, not_in_run
from outlast.execution.step_execution import BODY
from outlast.execution.threads import THREAD
from outlast.settings import Settings
from outlast.store.commands import CHECKPOINT, SESSION
from outlast.sync.portal import Portal, check_may_block

T = TypeVar("T")
D = TypeVar("D")


class _Waits:
    """Has a coroutine executed where it belongs: on the run loop for a sync workflow's own code, else on the loop of its Outlast."""

    def __init__(self, portal: Portal | None, space: str) -> None:
        self._portal, self._space = portal, space
        """None: it is used in a run, and is of that run's Outlast."""

    def _wait(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """`make` makes it, in the thread where it is executed."""
        thread, body = THREAD.get(), BODY.get()
        if thread is not None and body is None and asyncio._get_running_loop() is None:
            answer: T = thread.call(make)
            return answer
        if self._portal is not None:
            return self._portal.call(make)
        check_may_block()
        if body is None:
            raise not_in_run(self._space)
        return asyncio.run_coroutine_threadsafe(make(), body.execution.host).result()


class Session(_Waits):
    """State under an id: `session.set("name", "Ada")`, `session.get("name")`, durable when it returns. As the async one otherwise."""

    def __init__(self, portal: Portal | None, session: core.Session) -> None:
        super().__init__(portal, SESSION)
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    @overload
    def get(self, field: str, default: D) -> Any | D: ...
    @overload
    def get(self, field: str, default: None = None) -> Any: ...
    @overload
    def get(self, field: str, default: D, *, type: type[T]) -> T | D: ...
    @overload
    def get(self, field: str, default: None = None, *, type: type[T]) -> T | None: ...
    def get(self, field: str, default: Any = None, *, type: builtins.type[Any] = object) -> Any:
        """A field's value, as plain JSON or as `type` (Unrecordable if it does not fit), or `default` if there is none. A list is
        given whole."""
        return self._wait(partial(self._session.get, field, default, type=type))

    @overload
    def last(self, field: str, count: int | None = 20) -> list[Any]: ...
    @overload
    def last(self, field: str, count: int | None = 20, *, type: type[T]) -> list[T]: ...
    def last(
        self, field: str, count: int | None = 20, *, type: builtins.type[Any] = object
    ) -> list[Any]:
        """The newest `count` items of a list (None: all of them), oldest first, each as `type`. Empty if there is no such list."""
        return self._wait(partial(self._session.last, field, count, type=type))

    def all(self) -> dict[str, Any]:
        """Everything in it, by field, as plain JSON; empty if it is not there."""
        return self._wait(self._session.all)

    def info(self) -> SessionInfo | None:
        """Its version, when it was changed last, when it expires, and what is in it; None if it is not there. It moves no expiry."""
        return self._wait(self._session.info)

    def set(self, field: str, value: Any, *, version: int | None = None) -> int:
        """Set a field, whatever it was. The session's new version; VersionConflict, and nothing is written, if `version` is given and
        is not the current one (0: the session is not there yet)."""
        return self._wait(partial(self._session.set, field, value, version=version))

    def update(
        self, fields: Mapping[str, Any] | None = None, /, *, version: int | None = None, **more: Any
    ) -> int:
        """Set several fields at once, all of them or none: `update(name="Ada", age=36)` or `update({"name": "Ada"})`. As `set` otherwise."""
        return self._wait(
            partial(self._session.update, {**(fields or {}), **more}, version=version)
        )

    def append(self, field: str, *values: Any, keep: int | None = None) -> int:
        """Add values to the end of a list, of which only the newest `keep` stay then (None: all). The session's new version. A field that
        had a value becomes a list."""
        return self._wait(partial(self._session.append, field, *values, keep=keep))

    def delete(self, *fields: str) -> int:
        """Delete fields, lists too. The session's new version; 0 if it is not there. `clear()` deletes the whole of it."""
        return self._wait(partial(self._session.delete, *fields))

    def clear(self) -> None:
        """Delete the session. There is nothing of it any more, its version neither."""
        self._wait(self._session.clear)

    def __repr__(self) -> str:
        return repr(self._session)


class Checkpoint(_Waits):
    """What a task has done and knows, under its id:

        task = app.checkpoint("import-2026")
        for page in range(task.get("page", 0), 100):
            fetch(page)
            task.save(page=page + 1)

    What is saved is durable when the call returns, and stays until `clear` (or for `ttl` seconds, if that is given).
    """

    def __init__(self, portal: Portal | None, checkpoint: core_checkpoint.Checkpoint) -> None:
        super().__init__(portal, CHECKPOINT)
        self._checkpoint = checkpoint

    @property
    def id(self) -> str:
        return self._checkpoint.id

    def save(self, /, **fields: Any) -> None:
        """Save fields, all of them or none; others stay."""
        self._wait(partial(self._checkpoint.save, **fields))

    @overload
    def get(self) -> dict[str, Any]: ...
    @overload
    def get(self, field: str, default: D) -> Any | D: ...
    @overload
    def get(self, field: str, default: None = None) -> Any: ...
    @overload
    def get(self, field: str, default: D, *, type: type[T]) -> T | D: ...
    @overload
    def get(self, field: str, default: None = None, *, type: type[T]) -> T | None: ...
    def get(
        self, field: str | None = None, default: Any = None, *, type: builtins.type[Any] = object
    ) -> Any:
        """What was saved as `field`, or `default`; without a field, everything that was saved."""
        if field is None:
            return self._wait(self._checkpoint.get)
        return self._wait(partial(self._checkpoint.get, field, default, type=type))

    def mark(self, step: str, value: Any = None) -> None:
        """Say that a step is done, with what came of it."""
        self._wait(partial(self._checkpoint.mark, step, value))

    def done(self, step: str) -> bool:
        """Whether a step was marked."""
        return self._wait(partial(self._checkpoint.done, step))

    @overload
    def result(self, step: str, default: D) -> Any | D: ...
    @overload
    def result(self, step: str, default: None = None) -> Any: ...
    @overload
    def result(self, step: str, default: D, *, type: type[T]) -> T | D: ...
    @overload
    def result(self, step: str, default: None = None, *, type: type[T]) -> T | None: ...
    def result(self, step: str, default: Any = None, *, type: builtins.type[Any] = object) -> Any:
        """What a step was marked with, or `default` if it was not."""
        return self._wait(partial(self._checkpoint.result, step, default, type=type))

    def clear(self) -> None:
        """Forget all of it."""
        self._wait(self._checkpoint.clear)

    def __repr__(self) -> str:
        return repr(self._checkpoint)


def session(id: str, *, ttl: float | EllipsisType | None = ...) -> Session:
    """In a sync workflow or step: the session with this id. In a workflow's own code each call is recorded; in a step's body it is a plain
    one, made as often as the body is executed. Outside a run: `app.session(id)`."""
    return Session(None, core.Session(id, ttl, _settings("session")))


def checkpoint(task_id: str, *, ttl: float | None = None) -> Checkpoint:
    """In a sync workflow or step: what `app.checkpoint(task_id)` is outside."""
    return Checkpoint(None, core_checkpoint.Checkpoint(task_id, ttl, _settings("checkpoint")))


def _settings(what: str) -> Settings:
    thread, body = THREAD.get(), BODY.get()
    if asyncio._get_running_loop() is not None:
        check_may_block()
    if body is not None:
        return body.execution.engine.settings
    if thread is not None:
        return thread._execution.engine.settings
    raise not_in_run(what)
