"""Define `Session` and `Checkpoint` behind the HTTP API.

A session of `outlast` describes each read and each change. Here these become requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import EllipsisType
from typing import Any, TypeVar

from outlast.api import checkpoint as core_checkpoint
from outlast.api import session as core
from outlast.api.session_handle import Awaits
from outlast.api.session_reads import ABSENT, FOUND
from outlast.client.errors import ApiError
from outlast.client.rows import json_text, session_row
from outlast.client.session_changes import change_request, outcome_of
from outlast.client.transport import Transport, segment
from outlast.execution.session_changes import ChangeGroup, Write
from outlast.settings import Settings
from outlast.store.commands import CHECKPOINT, SESSION
from outlast.store.protocol import Store
from outlast.store.session_rows import SessionRow

T = TypeVar("T")
ANY_LENGTH = 10_000
ANY_SIZE = 2**53


class Session(core.Session):
    """State under an id that programs share, behind the HTTP API.

    The methods are those of `outlast.Session`. A change extends the expiry. A read does not,
    because a viewer changes nothing.
    """

    def __init__(
        self,
        transport: Transport,
        id: str,
        ttl: float | EllipsisType | None,
        *,
        space: str = SESSION,
        fields_max: int | None = None,
    ) -> None:
        super().__init__(id, ttl, _unlimited(), None, space, fields_max)
        self._transport = transport

    def _read(
        self,
        name: str,
        args: tuple[Any, ...],
        find: Callable[[Store], tuple[SessionRow | None, str]],  # noqa: ARG002
        decode: Callable[[str], T],
        *,
        touches: bool = True,  # noqa: ARG002
    ) -> Awaits[T]:
        async def read() -> T:
            return decode(await self._fetch(name, args))

        return read()

    async def _fetch(self, name: str, args: tuple[Any, ...]) -> str:
        """Return what a read finds, as text."""
        if name == "info":
            return await self._info()
        if name == "fields":
            if args == ((),):
                # No names: no fields.
                return "{}"
            return json_text((await self._ask("fields", **_fields_parameters(args)))["fields"])
        if name in ("last", "range"):
            field, *numbers = args
            parameters = _slice_parameters(name, numbers)
            return json_text((await self._ask("lists", field, **parameters))["items"])
        if not args:
            return json_text((await self._ask("values"))["values"])
        found = await self._ask("fields", *args)
        return f"{FOUND}{json_text(found['value'])}}}" if found["found"] else ABSENT

    async def _info(self) -> str:
        try:
            found = await self._ask(last=0)
        except ApiError as error:
            if error.status == 404:
                return "null"
            raise
        return json_text(session_row(found["session"]))

    async def _ask(self, *more: str, **parameters: Any) -> Any:
        return await self._transport.get(_path(self._at.space, self._at.id, *more), parameters)

    def _write(self, wanted: Write, *, alone: bool = False) -> Awaits[Any]:  # noqa: ARG002
        async def write() -> Any:
            if isinstance(wanted, ChangeGroup):
                requests = [change_request(one) for one in wanted.changes]
                changes = [
                    {**body, "id": one.at.id}
                    for (_, body), one in zip(requests, wanted.changes, strict=True)
                ]
                key = wanted.changes[0].token
                found = await self._act("/v1/session-updates", {"changes": changes}, key)
                return list(found["versions"])
            action, body = change_request(wanted)
            path = _path(wanted.at.space, wanted.at.id, action)
            return wanted.returned(outcome_of(wanted, await self._act(path, body, wanted.token)))

        return write()

    async def _act(self, path: str, body: dict[str, Any], key: str) -> Any:
        try:
            return await self._transport.act("POST", path, body, key=key)
        except ApiError as error:
            if str(error.document.get("type")).endswith(":IndexError"):
                raise IndexError(error.document.get("detail")) from None
            raise

    def _services(self) -> Any:
        """Return what all sessions of one client share."""
        return self._transport


class Checkpoint(core_checkpoint.Checkpoint):
    """The saved state of a task, behind the HTTP API.

    The methods are those of `outlast.Checkpoint`. A save extends the expiry, and a read does not.
    """

    def __init__(self, transport: Transport, task_id: str, ttl: float | None) -> None:
        self._session = Session(transport, task_id, ttl, space=CHECKPOINT)


def _path(space: str, id: str, *more: str) -> str:
    return f"/v1/{space}s/" + "/".join(map(segment, (id, *more)))


def _fields_parameters(args: tuple[Any, ...]) -> dict[str, Any]:
    if len(args) == 1:
        return {"names": args[0]}
    prefix, limit, after, reverse = args
    return {"prefix": prefix, "limit": limit, "after": after, "reverse": reverse}


def _slice_parameters(name: str, numbers: list[int | None]) -> dict[str, Any]:
    if name == "range":
        return {"start": numbers[0], "stop": numbers[1]}
    # None: all items.
    return {} if numbers[0] is None else {"last": numbers[0]}


def _unlimited() -> Settings:
    """Return settings whose limits refuse nothing. The server has its own."""
    return replace(
        Settings(),
        id_length_max=ANY_LENGTH,
        name_length_max=ANY_LENGTH,
        value_size_max=ANY_SIZE,
        session_fields_max=ANY_SIZE,
        session_items_max=ANY_SIZE,
    )
