"""Choose how an engine executes: with threads on the real clock, or inline in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outlast.engine.background import Background
from outlast.engine.in_flight_registry import InFlight
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.writer.group_commit_writer import GroupCommitWriter


@dataclass(frozen=True)
class ExecutionMode:
    """The parts of an engine that tests replace. The defaults are those of a real process."""

    writer: type[GroupCommitWriter] = GroupCommitWriter
    background: Callable[[asyncio.AbstractEventLoop, ShutdownState, int], Background] = Background
    in_flight: type[InFlight] = InFlight
    threads: bool = True
    """Whether the engine has threads and timers of its own: for the lease, for polls, for stalls.

    Without them the engine does not wait for a store that is unavailable.
    """
    step_overrides: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    """The functions to execute instead of the steps' own, by definition."""
    on_step_start: Callable[[str, str], None] | None = None
    """Called with the run and the key of every step that starts."""
