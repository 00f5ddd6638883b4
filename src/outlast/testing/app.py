"""Provide an `Outlast` for tests, in memory and on a virtual clock.

It has no threads of its own, and its steps can be stubbed.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Self, TypeVar, Unpack

from outlast.api.options import AppOptions
from outlast.api.outlast import Outlast
from outlast.api.step import StepBase
from outlast.api.workflow import Call
from outlast.codec.identifiers import unescape_name
from outlast.engine.in_flight_registry import InFlight
from outlast.execution.definitions import WorkflowDefinition
from outlast.store.protocol import Store
from outlast.testing.clock import VirtualClock, VirtualLoop
from outlast.testing.inline_mode import INLINE, InlineBackground
from outlast.testing.store_images import EmptyStore

R = TypeVar("R")
_UNSET: Any = object()

opened: list[App] = []
"""The apps that the current test has opened, if the pytest plugin is loaded. The plugin clears the
list after each test.
"""


class App(Outlast):
    """Run workflows in a test: in memory, and on a virtual clock.

    Call `app.run(report("tides"))` in a plain test, or use `async with App() as app:` in an async
    one. An async test runs on its own loop in real time, so a sleep takes as long as it says. On
    the virtual clock a sleep takes no time; `app.do(coroutine_function)` executes on that clock.

    The store lives as long as the object. Run again under the same id, and the run continues from
    its journal.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        clock: VirtualClock | None = None,
        seed: int | None = None,
        **settings: Unpack[AppOptions],
    ) -> None:
        self.clock = clock or VirtualClock()
        self.seed = seed
        if store is None:
            store = EmptyStore(clock=self.clock)
            weakref.finalize(self, store.close)
            # No other process has the store, so polling and heartbeats find nothing. They would
            # only fill the time of a virtual clock.
            settings.setdefault("poll", 1e6)
            settings.setdefault("heartbeat", 1e6)
            settings.setdefault("lease", 1e7)
        self.store: Store = store
        super().__init__(_Kept(self.store), **settings)
        self._lifecycle.mode = INLINE
        self._in_flight: type[InFlight] = InFlight
        """The registry of executions. A replay replaces it."""
        self._stubs: dict[StepBase[..., Any], Callable[..., Any]] = {}
        self.executed: Counter[str] = Counter()
        """How often each step was executed, by name. Several attempts of one call count once."""
        self._known: list[Mapping[str, WorkflowDefinition]] = []
        """The workflows the app knew, for each time it was open."""
        self._is_replay = False
        self._detached: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        """The tasks of this app that the end of its loop does not find."""

    def stub(
        self,
        step: StepBase[..., R],
        *,
        returns: R = _UNSET,
        raises: BaseException | None = None,
        calls: Callable[..., R | Awaitable[R]] | None = None,
    ) -> None:
        """Replace a step or an effect: return or raise a value, or call a function with its
        arguments.

        Pass a function for a step that is called in a loop, such as a model. An effect whose stub
        raises did not happen. The `verify` of a stubbed effect is not called, and its compensation
        does nothing unless it has its own stub.
        """
        if not isinstance(step, StepBase):
            raise TypeError(f"stub() takes a step, not {step!r}.")
        if (returns is not _UNSET) + (raises is not None) + (calls is not None) != 1:
            raise TypeError(
                "stub(step, returns=...), stub(step, raises=...) or stub(step, calls=...): one "
                "of the three."
            )
        if calls is not None and not callable(calls):
            raise TypeError(f"stub(step, calls=...) takes a function, not {calls!r}.")
        if iscoroutinefunction(calls) and not step.is_async:
            raise TypeError(
                f"step {step.name} is sync: stub(step, calls=...) takes a plain function for it."
            )

        def answer(*args: Any, **kwargs: Any) -> Any:
            if raises is not None:
                raise raises
            return returns if calls is None else calls(*args, **kwargs)

        async def stand_in(*args: Any, **kwargs: Any) -> Any:
            answered = answer(*args, **kwargs)
            return await answered if isawaitable(answered) else answered

        self._stubs[step] = stand_in if step.is_async else answer
        compensation = getattr(step, "compensation", None)
        if compensation is not None and compensation not in self._stubs:
            self.stub(compensation, returns=None)

    async def __aenter__(self) -> Self:
        self._lifecycle.mode = replace(
            INLINE,
            background=partial(InlineBackground, detached=self._detached),
            in_flight=self._in_flight,
            step_overrides=self._stubs,
            on_step_start=self._observe,
        )
        try:
            await super().__aenter__()
        finally:
            # It refers to this app, whose store is closed when nothing refers to it.
            self._lifecycle.mode = INLINE
        engine = self._open
        self._known.append(engine.workflows)
        if "outlast_pytest" in sys.modules and not self._is_replay and self not in opened:
            opened.append(self)
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.busy = lambda: (
                engine.background.pool.busy > 0
                or any(
                    execution.sync_thread is not None and execution.sync_thread.busy
                    for execution in engine.in_flight.executions.values()
                )
            )
        # On another loop nobody moves the clock, so nothing that waits would ever end.
        else:
            self.clock._follow(loop.time)
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await super().__aexit__(*exc)
        finally:
            self.clock._follow(None)

    def _observe(self, run: str, key: str) -> None:  # noqa: ARG002 - which run does not matter here
        name = key.rpartition("/")[2].rpartition("#")[0].partition("[")[0]
        self.executed[unescape_name(name)] += 1

    def run(self, call: Call[R], *, id: str | None = None) -> R:
        """Execute a workflow to its end on the virtual clock, and return its result."""

        async def main(app: Outlast) -> R:
            return await (await app.start(call, id=id)).result()

        return self.do(main)

    def do(self, action: Callable[[Outlast], Awaitable[R]]) -> R:
        """Open the app on a loop of the virtual clock, and return what `action` returns."""

        async def main() -> R:
            async with self:
                return await action(self)

        return self.clock.run(main(), seed=self.seed)

    def check_replay(self) -> None:
        """Replay every run in memory that is done or failed. Executes no step.

        Raise AssertionError if a run ends differently or calls a step that is not recorded. The
        error names the call, what the journal has, and the line of the code. The pytest plugin
        calls this after each test.

        Skips workflows whose name stood for several functions, and stores that are not in memory.
        """
        from outlast.testing.replay import ReplayDiffers, differences

        known: dict[str, WorkflowDefinition] = {}
        ambiguous: set[str] = set()
        for workflows in self._known:
            for name, workflow in workflows.items():
                if known.setdefault(name, workflow).fn is not workflow.fn:
                    ambiguous.add(name)
        found = differences(
            self, {name: one for name, one in known.items() if name not in ambiguous}
        )
        if found:
            raise ReplayDiffers(found)


class _Kept:
    """Keep a store open across the loops of a test: close() does nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
