"""Describe where a value comes from."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """The sources, in order of precedence."""

    KEYWORD = "keyword"
    ENVIRONMENT = "environment"
    ENV_FILE = "env file"
    SECRET_FILE = "secret file"  # noqa: S105 - no password
    FOREIGN = "foreign variable"
    DEFAULT = "default"


class Origin(NamedTuple):
    kind: Kind
    name: str = ""
    """The variable, or the file of a secret."""
    place: str = ""
    """The .env file, or the variable that named the secret's file."""

    def __str__(self) -> str:
        if self.kind is Kind.ENV_FILE:
            return f"{self.name} in {self.place}"
        if self.kind is Kind.SECRET_FILE and self.place:
            return f"{self.name} ({self.place})"
        return self.name or self.kind.value


class RawValue(NamedTuple):
    """A value as its source has it."""

    text: str
    origin: Origin
