"""Keep the history of a conversation in a session, without half-finished tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

from agents import SessionSettings, TResponseInputItem

from outlast.api import session_in_workflow
from outlast.api.outlast import Outlast
from outlast.api.session import Session
from outlast.errors import VersionConflict

ITEMS, OPEN = "items", "open"
"""The list of complete items, and the field with those that wait for the result of a tool call."""


class OutlastSession:
    """Keep a conversation in the store: `Runner.run(agent, text, session=OutlastSession("ada"))`.

    In a workflow, each change happens once, even after a crash. Outside a run, pass the app:
    `OutlastSession("ada", app)`. The history never has a tool call without its result: a call
    becomes visible together with its result.
    """

    def __init__(
        self,
        session_id: str,
        app: Outlast | None = None,
        *,
        ttl: float | EllipsisType | None = None,
        session_settings: SessionSettings | None = None,
    ) -> None:
        """Open the conversation with this id.

        It is kept for `ttl` seconds after its last use, or forever. `session_settings` are those
        of the SDK.
        """
        self.session_id = session_id
        self.session_settings = session_settings
        self._app = app
        self._ttl = ttl

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest `limit` items, oldest first. None: all of them."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        items = await self._session().last(ITEMS, limit)
        return items if limit is None else _without_lone_results(items)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items to the history.

        Those from the first tool call without a result are held back until its result is added.
        If a person speaks first, the call was given up, and is dropped.
        """
        if not items:
            return
        session = self._session()
        while True:
            version = await self._version(session)
            held: list[Any] = await session.get(OPEN, [])
            complete, waiting = _split(held, items)
            try:
                await session.update(
                    {OPEN: waiting} if waiting or held else {},
                    append={ITEMS: complete} if complete else None,
                    version=version,
                )
            except VersionConflict:
                # Another program changed the conversation after it was read.
                continue
            return

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it, or None if there is none."""
        session = self._session()
        while True:
            version = await self._version(session)
            held: list[Any] = await session.get(OPEN, [])
            if not held:
                popped = await session.pop(ITEMS)
                return popped[0] if popped else None
            try:
                await session.set(OPEN, held[:-1], version=version)
            except VersionConflict:
                continue
            newest: TResponseInputItem = held[-1]
            return newest

    async def clear_session(self) -> None:
        """Delete the conversation."""
        await self._session().clear()

    def _session(self) -> Session:
        if self._app is not None:
            return self._app.session(self.session_id, ttl=self._ttl)
        return session_in_workflow.session(self.session_id, ttl=self._ttl)

    @staticmethod
    async def _version(session: Session) -> int:
        info = await session.info()
        return 0 if info is None else info.version


def _split(held: Sequence[Any], added: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the items that are complete, and those from the first open tool call on."""
    if any(item.get("role") == "user" for item in added):
        unanswered = _open_calls(held)
        held = [item for item in held if _called(item) not in unanswered]
    items = [*held, *added]
    end = len(items)
    # Stop before a call whose result does not come before the end.
    while (first := _first_open(items[:end])) is not None:
        end = first
    return items[:end], items[end:]


def _first_open(items: Sequence[Any]) -> int | None:
    unanswered = _open_calls(items)
    return next((index for index, item in enumerate(items) if _called(item) in unanswered), None)


def _open_calls(items: Sequence[Any]) -> set[str]:
    answered = {_answered(item) for item in items}
    return {call for item in items if (call := _called(item)) and call not in answered}


def _without_lone_results(items: list[Any]) -> list[Any]:
    """Drop the results whose calls a limit has cut off."""
    called = {_called(item) for item in items}
    return [item for item in items if _answered(item) is None or _answered(item) in called]


def _called(item: Any) -> str | None:
    """Return the id of the tool call that an item makes. Tools of the provider have none."""
    return item.get("call_id") if str(item.get("type")).endswith("_call") else None


def _answered(item: Any) -> str | None:
    """Return the id of the tool call that an item answers."""
    return item.get("call_id") if str(item.get("type")).endswith("_output") else None
