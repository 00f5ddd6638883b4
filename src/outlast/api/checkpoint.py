"""`Checkpoint`: where a script was, for those who have one and no workflow. A session that does not expire, in a space of its own."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from outlast.api.session import Awaits, Session
from outlast.errors import BadName
from outlast.store.commands import CHECKPOINT

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.settings import Settings

T = TypeVar("T")
D = TypeVar("D")

DONE = "done:"
"""Before the name of a step that was marked."""


class Checkpoint:
    """What a task has done and knows, under its id:

        task = app.checkpoint("import-2026")
        for page in range(await task.get("page", 0), 100):
            await fetch(page)
            await task.save(page=page + 1)

    What is saved is durable when the call returns, and stays until `clear` (or for `ttl` seconds, if that is given).
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
        """The task's id."""
        return self._session.id

    def save(self, /, **fields: Any) -> Awaits[None]:
        """Save fields, all of them or none; others stay."""
        for name in fields:
            _check_field(name)
        return self._session._change("save", fields, quiet=True)

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
        """What was saved as `field`, or `default`; without a field, everything that was saved."""
        if field is None:
            return self._session._all("get", _without_marks)
        return self._session.get(_check_field(field), default, type=type)

    def mark(self, step: str, value: Any = None) -> Awaits[None]:
        """Say that a step is done, with what came of it."""
        return self._session._change("mark", {_mark(step): value}, quiet=True)

    def done(self, step: str) -> Awaits[bool]:
        """Whether a step was marked."""
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
        """What a step was marked with, or `default` if it was not."""
        return self._session.get(_mark(step), default, type=type)

    def clear(self) -> Awaits[None]:
        """Forget all of it."""
        return self._session.clear()

    def __repr__(self) -> str:
        return repr(self._session)


def _check_field(name: str) -> str:
    if isinstance(name, str) and name.startswith(DONE):
        raise BadName(
            f"field name {name!r} begins with {DONE!r}, which is how marked steps are kept: mark() them."
        )
    return name


def _mark(step: str) -> str:
    if not isinstance(step, str) or not step:
        raise BadName(f"step name must be a text that is not empty, not {step!r}.")
    return DONE + step


def _without_marks(text: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(text).items() if not name.startswith(DONE)}
