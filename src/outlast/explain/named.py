"""Errors that name the text that explains them."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

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

    @cached_property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # it can be assigned to all the same
        # Made when they are looked at: not in __init__, which a program's subclass may leave out and one that comes back from a journal does,
        # nor in a __new__, with which an OSError takes the arguments of a subclass for an errno and its text, and refuses named ones.
        return [f"{EXPLAIN} {self.explained_as}"]
