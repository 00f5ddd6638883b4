"""Errors that name the text that explains them."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

EXPLAIN = "outlast explain"
"""The command that every error names. It is not a URL: there may be no site."""


class Explained(BaseException):
    """An exception that `outlast explain` has a text for.

    A program's own subclass names the text of the nearest Outlast class.
    """

    explained_as: ClassVar[str] = ""
    """The name of that text. Each Outlast class names its own unless it sets another."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if cls.__module__.partition(".")[0] == "outlast" and "explained_as" not in vars(cls):
            cls.explained_as = cls.__name__

    @cached_property
    # Assigning to it still works.
    def __notes__(self) -> list[str]:  # type: ignore[override]
        # The notes are built on access. __init__ is no place for them: a program's subclass may not
        # call it, and an exception rebuilt from a journal does not. Neither is __new__: with one,
        # an OSError takes a subclass's arguments for an errno and its text, and refuses keywords.
        return [f"{EXPLAIN} {self.explained_as}"]
