"""Number the calls of a run. The numbers are parts of the keys under which the calls are recorded.

Each task numbers its own calls, so the order in which tasks proceed does not change a key. A
`scope(...)` block numbers the calls of all tasks that are created in it.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.execution.run_loop import RunLoop


class Scope:
    """Number the calls that one task makes, or all calls inside an explicit `scope(...)`."""

    __slots__ = ("_counts", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._counts: dict[str, int] = {}

    def key(self, name: str) -> str:
        """Return the next key for this name: the path, the name and a running number."""
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{self.path}{name}#{count}"


class ExplicitScope(Scope):
    """The scope of a `with scope(...)` block.

    It numbers the calls of every task that was created in the block.
    """

    __slots__ = ("inline", "loop")

    def __init__(self, path: str, loop: RunLoop, *, inline: bool) -> None:
        super().__init__(path)
        self.loop = loop
        self.inline = inline
        """Whether functions for an executor are executed on the run loop."""


EXPLICIT_SCOPE: ContextVar[ExplicitScope | None] = ContextVar("outlast_scope", default=None)
"""The innermost `scope(...)` around the current code. A step's body inherits its workflow's."""


def creating_function() -> str:
    """Return which function creates the current task: "anyio", "as_completed", "wait_for" or "".

    It decides how the task is numbered.
    """
    frame = sys._getframe(3)
    in_create_task = False
    for _ in range(4):
        code = frame.f_code
        if frame.f_globals.get("__name__", "").startswith("anyio."):
            return "anyio"
        if not code.co_filename.endswith("tasks.py") or in_create_task:
            return ""
        in_create_task = code.co_name == "create_task"
        if code.co_qualname.startswith(("as_completed", "_AsCompletedIterator")):
            return "as_completed"
        if code.co_name == "wait_for":
            return "wait_for"
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return ""
