"""Describe one moment of the demo: the workers, the progress of each run, and what has happened.

Pure data for the views.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Mood = Literal["plain", "good", "warn", "bad", "dim"]


class Event(NamedTuple):
    at: float
    """Seconds since the beginning."""
    text: str
    mood: Mood = "plain"


class WorkerState(NamedTuple):
    name: str
    state: str
    pid: int
    runs: tuple[str, ...] = ()


class RunState(NamedTuple):
    id: str
    state: str
    steps: int
    """How many are on record."""
    doing: str = ""


@dataclass
class State:
    seconds: float = 0.0
    workers: list[WorkerState] = field(default_factory=list)
    runs: list[RunState] = field(default_factory=list)
    messages: int = 0
    tokens: int = 0
    events: list[Event] = field(default_factory=list)
