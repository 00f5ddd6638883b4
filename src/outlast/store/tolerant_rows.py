"""Display rows even if some are damaged or were not written by Outlast.

The error is shown in place of the row, and the other rows are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from outlast.codec.exceptions import message_of
from outlast.codec.text import one_line
from outlast.errors import OutlastError, StoreBroken

Row = TypeVar("Row")
Output = TypeVar("Output")

DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What displaying a row that no Outlast has written can raise."""
WHY_LENGTH = 80


def each_displayed(
    rows: Iterable[Row], show: Callable[[Row], Output], instead: Callable[[Row, str], Output]
) -> list[Output]:
    """Return `show` of each row, or `instead` with the reason for one that cannot be read."""
    return [_converted(row, show, instead) for row in rows]


def each_document(
    rows: Iterable[Row], document: Callable[[Row], dict[str, Any]], name: str
) -> list[dict[str, Any]]:
    """Return the document of each row. An unreadable row yields its name and the reason."""
    return each_displayed(
        rows, document, lambda row, why: {name: str(getattr(row, name)), "unreadable": why}
    )


@contextmanager
def legible(what: str) -> Iterator[None]:
    """Raise StoreBroken if what this block displays cannot be read."""
    try:
        yield
    except OutlastError:
        raise
    except DAMAGE as error:
        raise StoreBroken(
            f"{what} cannot be read ({_why(error)}): it is damaged, or was not written by "
            "Outlast. Nothing was changed."
        ) from error


def _converted(
    row: Row, show: Callable[[Row], Output], instead: Callable[[Row, str], Output]
) -> Output:
    try:
        return show(row)
    except DAMAGE as error:
        return instead(row, f"cannot be read ({_why(error)})")


def _why(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {message_of(error)}")[:WHY_LENGTH]
