"""Let a life crash at its Nth write, or in the Nth act of an effect."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from outlast.api.effect import EffectBase
from outlast.store.commands import Command, Record
from outlast.store.protocol import Store

When = Literal["before", "after"]

Where = Literal["write", "act"]


class Crash(SystemExit):
    """Stop a life at once. Of all exceptions, only an exit leaves an event loop immediately."""


@dataclass(frozen=True)
class Point:
    """Name where a life dies: before or after its Nth write, or its Nth act."""

    where: Where
    at: int
    when: When

    def __str__(self) -> str:
        return f"a crash {self.when} {self.where} {self.at}"


class CrashingStore:
    """Crash at the Nth commit, before or after it. After that the store refuses every commit."""

    def __init__(self, store: Store, at: int | None, when: When, pull: Callable[[], None]) -> None:
        self._store, self._at, self._when, self._pull = store, at, when, pull
        self.writes = 0
        self.pulled = False
        self.hit = ""
        """What was written, or which effect acted, at the crash."""

    def commit(self, commands: Sequence[Command]) -> list[Any]:
        if self.pulled:
            raise Crash
        self.writes += 1
        if self.writes == self._at:
            self.hit = ", ".join(dict.fromkeys(map(_described, commands)))
            if self._when == "before":
                self._die()
        outcomes = self._store.commit(commands)
        if self.writes == self._at:
            self._die()
        return outcomes

    def try_commit(self, commands: Sequence[Command]) -> list[Any] | None:
        return self.commit(commands)

    def _die(self) -> None:
        self.pulled = True
        self._pull()
        raise Crash

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _described(command: Command) -> str:
    """Return what a write is about: the entry that it records, or the name of the command."""
    if isinstance(command, Record):
        return f"{command.kind} {command.key}" if command.key else command.kind
    return type(command).__name__


class CrashingActs(dict[Any, Callable[..., Any]]):
    """Wrap effects so that they crash in their Nth act.

    The crash comes before anything has happened, or when all has happened and nothing is recorded.
    """

    def __init__(
        self, plug: CrashingStore, point: Point | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__()
        self._plug, self._loop, self.count = plug, loop, 0
        self._at, self._when = (
            (point.at, point.when) if point is not None and point.where == "act" else (0, "")
        )

    def get(self, step: Any, default: Any = None) -> Any:
        fn = super().get(step, default)
        if not isinstance(step, EffectBase):
            return fn

        async def act(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            dying = self.count == self._at
            if not dying:
                return await fn(*args, **kwargs)
            if self._when == "after":
                await fn(*args, **kwargs)
            self._die(step.name)
            return await self._loop.create_future()

        def sync_act(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            dying = self.count == self._at
            if not dying:
                return fn(*args, **kwargs)
            if self._when == "after":
                fn(*args, **kwargs)
            self._die(step.name)
            # This thread ends with its process.
            raise Crash

        return act if inspect.iscoroutinefunction(fn) else sync_act

    def _die(self, name: str) -> None:
        """Crash from any thread, but not in the effect's own task, which would take the blame."""
        self._plug.pulled, self._plug.hit = True, f"effect {name}"
        self._loop.call_soon_threadsafe(_crash)


def _crash() -> None:
    raise Crash
