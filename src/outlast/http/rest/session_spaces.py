"""Declare each route of sessions for checkpoints too: they are sessions in a space of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends
from pydantic import BaseModel
from starlette.requests import Request

from outlast.http.rest.problems import Problem
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Endpoint, Routes
from outlast.store.commands import CHECKPOINT, SESSION
from outlast.store.session_rows import SessionRow

SPACES = (SESSION, CHECKPOINT)


class SpaceRoutes(Routes):
    """Collect routes that exist below `/v1/sessions` and below `/v1/checkpoints`."""

    def add_to_spaces(
        self,
        method: str,
        rest: str,
        access: Access,
        answer: type[BaseModel],
        *,
        problems: tuple[int, ...] = (),
    ) -> Callable[[Endpoint], Endpoint]:
        """Declare a route for each space. `rest` is what follows the name of the space."""

        def declare(endpoint: Endpoint) -> Endpoint:
            for space in SPACES:
                add = self.add(
                    method,
                    f"/v1/{space}s{rest}",
                    access,
                    answer,
                    problems=problems,
                    operation=endpoint.__name__.replace(SESSION, space),
                )
                add(endpoint)
            return endpoint

        return declare


def _space(request: Request) -> str:
    path: str = request.scope["route"].path
    return next(space for space in SPACES if path.startswith(f"/v1/{space}s"))


Space = Annotated[str, Depends(_space)]
"""The space of a request: of sessions, or of checkpoints."""


def found(row: SessionRow | None, space: str, id: str) -> SessionRow:
    """Return the row of a session. Raise Problem 404 if there is none."""
    if row is None:
        raise Problem(
            404,
            f"No {space} has the id {id!r}: it was never written, or it has expired.",
            next=f"GET /v1/{space}s lists the {space}s.",
            kind="UnknownSession",
        )
    return row
