"""Define what requests about sessions must look like."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, FiniteFloat

from outlast.engine.session_parts import TTL_MAX
from outlast.http.rest.requests import (
    LENGTH_MAX,
    NUMBER_MAX,
    RUNS_MAX,
    Body,
    Name,
    Number,
    Parameters,
    storable,
)

Prefix = Annotated[str, Field(max_length=LENGTH_MAX), AfterValidator(storable)]
Index = Annotated[int, Field(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Ttl = Annotated[FiniteFloat, Field(gt=0, le=TTL_MAX)]
_TTL = "Seconds that this keeps it. Null: for ever. Left out: as by default."


class SessionFilter(Parameters):
    prefix: Prefix = ""
    limit: int = Field(default=100, ge=1, le=RUNS_MAX)
    order: Literal["id", "updated"] = Field(
        default="id", description="By id, or the last changed first."
    )
    after: Name | None = Field(default=None, description="An id, or `next` of the page before.")


class SessionView(Parameters):
    last: int = Field(default=10, ge=0, le=RUNS_MAX, description="Items of each list to show.")


class FieldFilter(Parameters):
    """Which fields to return, in the order of their names."""

    prefix: Prefix = ""
    limit: Number | None = None
    after: Name | None = Field(default=None, description="Start after this name.")
    reverse: bool = Field(default=False, description="Begin with the last name.")
    names: list[Name] = Field(
        default=[], max_length=RUNS_MAX, description="These fields, and no other parameter."
    )


class ListSlice(Parameters):
    """Which items of a list to return, as in a slice."""

    start: Index = 0
    stop: Index | None = None
    last: Number | None = Field(default=None, description="The newest items, in place of a slice.")


class SessionTouch(Body):
    ttl: Ttl | None = Field(default=None, description=_TTL)


class SessionClear(Body):
    owner: Number | None = Field(default=None, description="The number that a take answered.")


class SessionWrite(SessionTouch, SessionClear):
    """The fields that every change of a session may have."""


class FieldsUpdate(SessionWrite):
    """Fields and lists to change, all or none."""

    set: dict[str, Any] = Field(default={}, description="Values by field.")
    append: dict[str, list[Any]] = Field(default={}, description="Items to add, by list.")
    delete: list[str] = Field(default=[], description="Fields and lists.")
    keep: Annotated[int, Field(ge=1, le=NUMBER_MAX)] | None = Field(
        default=None, description="How many of the newest items of the lists stay."
    )
    version: Number | None = Field(
        default=None, description="The version that it must have. 0: it must not exist."
    )
    if_absent: bool | list[str] = Field(
        default=False, description="Which fields to leave as they are if they have a value."
    )
    fields_max: Annotated[int, Field(ge=1, le=NUMBER_MAX)] | None = None


class SessionUpdate(FieldsUpdate):
    """A change of one of several sessions."""

    id: Name


class SessionUpdates(Body):
    """Changes of several sessions, all or none."""

    changes: list[SessionUpdate]


class ItemsToPop(SessionWrite):
    field: Name
    count: Annotated[int, Field(ge=1, le=NUMBER_MAX)] = 1


class ItemToReplace(SessionWrite):
    field: Name
    index: Index
    value: Any
