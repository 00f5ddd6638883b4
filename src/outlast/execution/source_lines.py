"""Find the line of the user's code that made a call, for messages about that call."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_OURS = str(Path(__file__).parents[1]) + "/"
_STDLIB = str(Path(os.__file__).parent) + "/"
_INSTALLED = ("/site-packages/", "/dist-packages/")

Line = tuple[CodeType, int]
"""A line of code that was executing. A frame would keep its variables alive."""


def calling_line() -> Line:
    """Return the innermost line outside Outlast.

    Only for `CallTable.reserve`, called by another function of Outlast: the first frames
    are skipped.
    """
    # Walking frames costs time, so skip those known to be Outlast's.
    frame: FrameType = sys._getframe(3)
    while frame.f_code.co_filename.startswith(_OURS) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lineno


def creating_line() -> Line | None:
    """Return the line that creates a task: the innermost outside Outlast and Python itself.

    `RunLoop.create_task` uses it.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS) and (not file.startswith(_STDLIB) or _is_installed(file)):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None


def is_of_program(line: Line, module: str) -> bool:
    """Return whether a line belongs to the user's program.

    Libraries do not, except the package of `module`.
    """
    file = line[0].co_filename
    for part in _INSTALLED:
        if part in file:
            package = file.partition(part)[2].partition("/")[0].removesuffix(".py")
            return package == module.partition(".")[0]
    return True


def _is_installed(file: str) -> bool:
    return any(part in file for part in _INSTALLED)


def location(line: Line) -> str:
    """Format a line as tracebacks do: file and number."""
    code, number = line
    return f"{code.co_filename}:{number}"


def users_line(module: str, waiting: Iterable[asyncio.Task[Any]]) -> str | None:
    """Return where the user's code is, as file:line, or None.

    Search the stack first, then where the first of these tasks waits: a call that a library makes
    in its own task has no user code on its stack. The user's code is the workflow's own package and
    everything that is neither installed nor part of Python or Outlast.
    """
    package = module.partition(".")[0]
    for frame in _stack():
        if is_users(frame, package):
            return location((frame.f_code, frame.f_lineno))
    for task in waiting:
        for frame in reversed(list(_awaiting(task.get_coro()))):
            if is_users(frame, package):
                return location((frame.f_code, frame.f_lineno))
    return None


def calling_tasks(
    loop: asyncio.AbstractEventLoop, main: asyncio.Task[Any] | None
) -> Iterator[asyncio.Task[Any]]:
    """Yield a workflow's current task, its chain of creators, and the main task."""
    task = asyncio.current_task(loop)
    while task is not None:
        yield task
        creator = getattr(task, "creator", None)
        task = None if creator is None else creator()
    if main is not None:
        yield main


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == asyncio.events.__file__:
            # The frames beyond drive the loop. They made no call.
            return
        yield frame
        frame = frame.f_back


def _awaiting(coro: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of those it awaits, outermost first."""
    while coro is not None:
        frame = getattr(coro, "cr_frame", None)
        if frame is None:
            return
        yield frame
        coro = coro.cr_await


def is_users(frame: FrameType, package: str = "") -> bool:
    """Return whether a frame executes the user's code.

    Python, Outlast and installed packages are not the user's code, except `package`.
    """
    file = frame.f_code.co_filename
    if file.startswith((_OURS, "<frozen")):
        return False
    if _is_installed(file) or file.startswith(_STDLIB):
        module: str = frame.f_globals.get("__name__", "")
        return module.partition(".")[0] == package
    return True
