"""Execute an engine inline: blocking calls and commits happen on the loop, on its clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from outlast.engine.background import Background
from outlast.engine.execution_mode import ExecutionMode
from outlast.store.writer.inline import InlineWriter

T = TypeVar("T")


class InlineBackground(Background):
    """Call blocking functions directly. Steps still have threads."""

    async def in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Call the function and return its result."""
        return fn(*args)


INLINE = ExecutionMode(writer=InlineWriter, background=InlineBackground, threads=False)
"""The mode of an app on a virtual clock."""
