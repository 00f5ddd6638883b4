"""Define `Session` and `Checkpoint` for sync code: the async ones, blocking."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from outlast.api import checkpoint as core_checkpoint
from outlast.api import session as core
from outlast.api.session_handle import not_in_run
from outlast.execution.step_execution import BODY
from outlast.execution.threads import THREAD
from outlast.store.commands import CHECKPOINT, SESSION
from outlast.sync.portal import Portal, check_may_block

if TYPE_CHECKING:
    from outlast.api.session_info import SessionInfo
    from outlast.settings import Settings

T = TypeVar("T")
D = TypeVar("D")


class _Waits:
    """Execute a coroutine where it belongs and wait for it.

    That is the run loop for a sync workflow's own code, else the loop of its Outlast.
    """

    def __init__(self, portal: Portal | None, space: str) -> None:
        self._portal, self._space = portal, space
        """The portal is None for a session that is used in a run and belongs to that run's Outlast.
        """

    def _wait(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Call `make` in the thread that executes its coroutine, and return the result."""
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
    """State under an id: `session.set("name", "Ada")`, `session.get("name")`.

    A change is durable when its call returns. Otherwise it works like the async session.
    """

    def __init__(self, portal: Portal | None, session: core.Session) -> None:
        super().__init__(portal, SESSION)
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def owner(self) -> int | None:
        """Return the number under which `take` made this handle the owner. None: it is not one.

        Each take gets a greater number, so other systems can use it as a fence.
        """
        return self._session.owner

    @overload
    def get(self, field: str, default: D) -> Any | D: ...
    @overload
    def get(self, field: str, default: None = None) -> Any: ...
    @overload
    def get(self, field: str, default: D, *, type: type[T]) -> T | D: ...
    @overload
    def get(self, field: str, default: None = None, *, type: type[T]) -> T | None: ...
    def get(self, field: str, default: Any = None, *, type: builtins.type[Any] = object) -> Any:
        """Return a field's value as plain JSON or as `type`, or `default` if it has none.

        A list is returned whole. Raise Unrecordable if the value does not fit `type`.
        """
        return self._wait(partial(self._session.get, field, default, type=type))

    @overload
    def last(self, field: str, count: int | None = 20) -> list[Any]: ...
    @overload
    def last(self, field: str, count: int | None = 20, *, type: type[T]) -> list[T]: ...
    def last(
        self, field: str, count: int | None = 20, *, type: builtins.type[Any] = object
    ) -> list[Any]:
        """Return the newest `count` items of a list (None: all), oldest first, each as `type`.

        The result is empty if there is no such list.
        """
        return self._wait(partial(self._session.last, field, count, type=type))

    @overload
    def range(self, field: str, start: int = 0, stop: int | None = None) -> list[Any]: ...
    @overload
    def range(
        self, field: str, start: int = 0, stop: int | None = None, *, type: type[T]
    ) -> list[T]: ...
    def range(
        self,
        field: str,
        start: int = 0,
        stop: int | None = None,
        *,
        type: builtins.type[Any] = object,
    ) -> list[Any]:
        """Return the items `[start:stop]` of a list, each as `type`.

        As in a slice, `stop` is excluded and negative numbers count from the end.
        """
        return self._wait(partial(self._session.range, field, start, stop, type=type))

    @overload
    def fields(
        self,
        prefix: str = "",
        *,
        names: Iterable[str] | None = None,
        limit: int | None = None,
        after: str | None = None,
        reverse: bool = False,
    ) -> dict[str, Any]: ...
    @overload
    def fields(
        self,
        prefix: str = "",
        *,
        names: Iterable[str] | None = None,
        limit: int | None = None,
        after: str | None = None,
        reverse: bool = False,
        type: type[T],
    ) -> dict[str, T]: ...
    def fields(
        self,
        prefix: str = "",
        *,
        names: Iterable[str] | None = None,
        limit: int | None = None,
        after: str | None = None,
        reverse: bool = False,
        type: builtins.type[Any] = object,
    ) -> dict[str, Any]:
        """Return the fields whose names begin with `prefix`, in the order of their names.

        Only these are read, at most `limit` of them, starting after the name `after`. `reverse`
        begins with the last name. Lists are left out. With `names`, return those of these fields
        that have a value.
        """
        return self._wait(
            partial(
                self._session.fields,
                prefix,
                names=names,
                limit=limit,
                after=after,
                reverse=reverse,
                type=type,
            )
        )

    def all(self) -> dict[str, Any]:
        """Return everything in the session by field, as plain JSON.

        The result is empty if the session does not exist.
        """
        return self._wait(self._session.all)

    def info(self) -> SessionInfo | None:
        """Return the session's version, last change, expiry, field names and list lengths.

        Return None if the session does not exist. This does not extend its expiry.
        """
        return self._wait(self._session.info)

    @overload
    def set(self, field: str, value: Any, *, version: int | None = None) -> int: ...
    @overload
    def set(
        self, field: str, value: Any, *, version: int | None = None, if_absent: Literal[True]
    ) -> bool: ...
    def set(
        self, field: str, value: Any, *, version: int | None = None, if_absent: bool = False
    ) -> Any:
        """Set a field and return the session's new version.

        With `if_absent`, set it only if it has no value and is no list, and return whether it was
        set.

        Raise VersionConflict, and write nothing, if `version` is given and is not the current one.
        Version 0 means that the session does not exist yet.
        """
        options: dict[str, Any] = {"version": version, "if_absent": if_absent}
        return self._wait(partial(self._session.set, field, value, **options))

    def update(
        self,
        fields: Mapping[str, Any] | None = None,
        /,
        *,
        append: Mapping[str, Iterable[Any]] | None = None,
        delete: Iterable[str] = (),
        keep: int | None = None,
        version: int | None = None,
        if_absent: bool | Iterable[str] = False,
        **more: Any,
    ) -> int:
        """Change several fields and lists at once, all or none, and return the new version.

        Call it as `update(name="Ada", age=36)` or `update({"name": "Ada"})`. `append` adds values
        to lists, of which only the newest `keep` items stay. `delete` names fields and lists to
        delete. With `if_absent`, fields that have a value stay as they are: all of `fields`, or
        those that it names. `version` works as in `set`.
        """
        return self._wait(
            partial(
                self._session.update,
                {**(fields or {}), **more},
                append=append,
                delete=delete,
                keep=keep,
                version=version,
                if_absent=if_absent,
            )
        )

    def change(
        self,
        fields: Mapping[str, Any] | None = None,
        /,
        *,
        append: Mapping[str, Iterable[Any]] | None = None,
        delete: Iterable[str] = (),
        keep: int | None = None,
        version: int | None = None,
        if_absent: bool | Iterable[str] = False,
        **more: Any,
    ) -> SessionChange:
        """Return the change that `update` would make, to be made by `update_sessions`."""
        part = self._session.change(
            {**(fields or {}), **more},
            append=append,
            delete=delete,
            keep=keep,
            version=version,
            if_absent=if_absent,
        )
        return SessionChange(self, part)

    def append(self, field: str, *values: Any, keep: int | None = None) -> int:
        """Append values to a list and return the session's new version.

        Only the newest `keep` items stay (None: all). A field that had a value becomes a list.
        """
        return self._wait(partial(self._session.append, field, *values, keep=keep))

    @overload
    def pop(self, field: str, count: int = 1) -> list[Any]: ...
    @overload
    def pop(self, field: str, count: int = 1, *, type: type[T]) -> list[T]: ...
    def pop(self, field: str, count: int = 1, *, type: builtins.type[Any] = object) -> list[Any]:
        """Remove the newest `count` items of a list and return them, oldest first, each as `type`.

        Return fewer if the list is shorter. A list without items is deleted.
        """
        return self._wait(partial(self._session.pop, field, count, type=type))

    def replace(self, field: str, index: int, value: Any) -> int:
        """Replace one item of a list and return the session's new version.

        A negative index counts from the end. Raise IndexError if there is no such item.
        """
        return self._wait(partial(self._session.replace, field, index, value))

    def delete(self, *fields: str) -> int:
        """Delete fields and lists and return the session's new version, or 0 if it does not exist.

        `clear()` deletes the whole session.
        """
        return self._wait(partial(self._session.delete, *fields))

    def clear(self) -> None:
        """Delete the session, including its version. An owner empties it and stays its owner."""
        self._wait(self._session.clear)

    def take(self) -> Session:
        """Become the session's only owner, and return a handle for the owner's writes.

        Once another process takes the session, the handle's writes raise NotOwner and change
        nothing. A session that does not exist is created. Writes through handles that did not take
        the session are not checked.
        """
        return Session(self._portal, self._wait(self._session.take))

    def owned_by(self, owner: int) -> Session:
        """Return a handle that writes as the owner with this number, as `take` numbered it.

        Use it where only the number is at hand, such as in a process that got it in a message.
        """
        return Session(self._portal, self._session.owned_by(owner))

    def __repr__(self) -> str:
        return repr(self._session)


@dataclass(frozen=True)
class SessionChange:
    """A change of one session that has not been made yet, for `update_sessions`."""

    session: Session
    part: core.SessionChange


def update_sessions(*changes: SessionChange) -> list[int]:
    """Change several sessions of one store, all or none, and return their new versions in order.

    Call it as `update_sessions(a.change(...), b.change(...))`. If one change is refused, its error
    is raised and nothing is written.
    """
    if not changes:
        raise ValueError("update_sessions() takes changes: update_sessions(a.change(x=1), ...).")
    parts = [_part(change) for change in changes]
    return changes[0].session._wait(partial(core.update_sessions, *parts))


def _part(change: SessionChange) -> core.SessionChange:
    if not isinstance(change, SessionChange):
        raise TypeError(
            f"update_sessions() takes what session.change(...) returns, not {change!r}."
        )
    return change.part


class Checkpoint(_Waits):
    """The saved state of a task, under its id:

        task = app.checkpoint("import-2026")
        for page in range(task.get("page", 0), 100):
            fetch(page)
            task.save(page=page + 1)

    A save is durable when the call returns. The state stays until `clear`, or until it is not used
    for `ttl` seconds if that is given.
    """

    def __init__(self, portal: Portal | None, checkpoint: core_checkpoint.Checkpoint) -> None:
        super().__init__(portal, CHECKPOINT)
        self._checkpoint = checkpoint

    @property
    def id(self) -> str:
        return self._checkpoint.id

    def save(self, /, **fields: Any) -> None:
        """Save fields, all of them or none. Other fields stay."""
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
        """Return the field's saved value, or `default`.

        Without a field, return everything saved.
        """
        if field is None:
            return self._wait(self._checkpoint.get)
        return self._wait(partial(self._checkpoint.get, field, default, type=type))

    def mark(self, step: str, value: Any = None) -> None:
        """Mark a step as done, with its result."""
        self._wait(partial(self._checkpoint.mark, step, value))

    def done(self, step: str) -> bool:
        """Return whether a step is marked as done."""
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
        """Return the result that a step was marked with, or `default` if it is not marked."""
        return self._wait(partial(self._checkpoint.result, step, default, type=type))

    def clear(self) -> None:
        """Delete everything saved, including the marks."""
        self._wait(self._checkpoint.clear)

    def __repr__(self) -> str:
        return repr(self._checkpoint)


def session(
    id: str, *, ttl: float | EllipsisType | None = ..., fields_max: int | None = None
) -> Session:
    """Return the session with this id, in a sync workflow or step.

    In a workflow's own code each call is recorded. In a step's body it is a plain call, made as
    often as the body executes. Outside a run, use `app.session(id)`.
    """
    return Session(None, core.Session(id, ttl, _settings("session"), fields_max=fields_max))


def checkpoint(task_id: str, *, ttl: float | None = None) -> Checkpoint:
    """Return the checkpoint of a task, in a sync workflow or step.

    See `app.checkpoint(task_id)`.
    """
    return Checkpoint(None, core_checkpoint.Checkpoint(task_id, ttl, _settings("checkpoint")))


def _settings(what: str) -> Settings:
    thread, body = THREAD.get(), BODY.get()
    if asyncio._get_running_loop() is not None:
        check_may_block()
    if body is not None:
        return body.execution.services.settings
    if thread is not None:
        return thread._execution.services.settings
    raise not_in_run(what)
