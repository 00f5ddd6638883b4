"""Define `Checkpoint`: the saved position of a script that has no workflow.

It is a session in a space of its own that does not expire by default.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from outlast.api.session import Session
from outlast.api.session_handle import Awaits
from outlast.errors import BadName
from outlast.store.commands import CHECKPOINT

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.settings import Settings

T = TypeVar("T")
D = TypeVar("D")

DONE = "done:"
"""The prefix of marked steps' field names."""


class Checkpoint:
    """The saved state of a task, under its id:

        task = app.checkpoint("import-2026")
        for page in range(await task.get("page", 0), 100):
            await fetch(page)
            await task.save(page=page + 1)

    A save is durable when the call returns. The state stays until `clear`, or until it is not used
    for `ttl` seconds if that is given.
    """

    def __init__(
        self,
        task_id: str,
        ttl: float | None,
        settings: Settings,
        find: Callable[[], Engine] | None = None,
    ) -> None:
        self._session = Session(task_id, ttl, settings, find, CHECKPOINT)

    @property
    def id(self) -> str:
        """Return the task's id."""
        return self._session.id

    def save(self, /, **fields: Any) -> Awaits[None]:
        """Save fields, all of them or none. Other fields stay."""
        for name in fields:
            _check_field(name)
        return self._session._save("save", fields)

    @overload
    def get(self) -> Awaits[dict[str, Any]]: ...
    @overload
    def get(self, field: str, default: D) -> Awaits[Any | D]: ...
    @overload
    def get(self, field: str, default: None = None) -> Awaits[Any]: ...
    @overload
    def get(self, field: str, default: D, *, type: type[T]) -> Awaits[T | D]: ...
    @overload
    def get(self, field: str, default: None = None, *, type: type[T]) -> Awaits[T | None]: ...
    def get(
        self, field: str | None = None, default: Any = None, *, type: builtins.type[Any] = object
    ) -> Awaits[Any]:
        """Return a field's saved value, or `default`. Without a field, return all of them."""
        if field is None:
            return self._session._all("get", _without_marks)
        return self._session.get(_check_field(field), default, type=type)

    def mark(self, step: str, value: Any = None) -> Awaits[None]:
        """Mark a step as done, with its result."""
        return self._session._save("mark", {_mark(step): value})

    def done(self, step: str) -> Awaits[bool]:
        """Return whether a step is marked as done."""
        return self._session._get("done", _mark(step), lambda text: text is not None)

    @overload
    def result(self, step: str, default: D) -> Awaits[Any | D]: ...
    @overload
    def result(self, step: str, default: None = None) -> Awaits[Any]: ...
    @overload
    def result(self, step: str, default: D, *, type: type[T]) -> Awaits[T | D]: ...
    @overload
    def result(self, step: str, default: None = None, *, type: type[T]) -> Awaits[T | None]: ...
    def result(
        self, step: str, default: Any = None, *, type: builtins.type[Any] = object
    ) -> Awaits[Any]:
        """Return the result that a step was marked with, or `default` if it is not marked."""
        return self._session.get(_mark(step), default, type=type)

    def clear(self) -> Awaits[None]:
        """Delete everything saved, including the marks."""
        return self._session.clear()

    def __repr__(self) -> str:
        return repr(self._session)


def _check_field(name: str) -> str:
    if isinstance(name, str) and name.startswith(DONE):
        raise BadName(
            f"field name {name!r} begins with {DONE!r}, which is reserved for steps that mark() "
            "records."
        )
    return name


def _mark(step: str) -> str:
    if not isinstance(step, str) or not step:
        raise BadName(f"step name must be a non-empty string, not {step!r}.")
    return DONE + step


def _without_marks(text: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(text).items() if not name.startswith(DONE)}
