"""Errors that name the text that explains them."""

from __future__ import annotations

from typing import Any, ClassVar, Self

EXPLAIN = "outlast explain"
"""The command that every error names. It is no address: there may be no site, and the text is in the package."""


class Explained(BaseException):
    """What `outlast explain` has a text of. A subclass in a program names the nearest of Outlast's own."""

    explained_as: ClassVar[str] = ""
    """The name of that text: of each class of Outlast its own, unless it says another."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if cls.__module__.partition(".")[0] == "outlast" and "explained_as" not in vars(cls):
            cls.explained_as = cls.__name__

    def __new__(cls, *args: Any, **given: Any) -> Self:
        # Not in __init__: an error that comes back from a journal is made without it, and so may a program's subclass be.
        error = super().__new__(cls, *args, **given)
        error.add_note(f"{EXPLAIN} {cls.explained_as}")
        return error
