"""A fleet that takes up what a rolling deploy gave back all at once, on a virtual clock.

The workers are real (`Outlast(worker=True)`, one for each process of a fleet); the time and the model API are not. The same
seed gives the same figures.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from outlast import Outlast, current, step, workflow
from outlast.api.workflow import Workflow
from outlast.engine import claimer
from outlast.execution import step_attempts
from outlast.settings import Settings
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.app import _Kept
from outlast.testing.clock import VirtualClock
from outlast.testing.inline_mode import INLINE
from outlast.testing.store_images import image_of, open_image

LONG = 1e6
OUTSIDE: dict[str, Any] = {"lease": LONG * 4, "heartbeat": LONG}
"""Nobody dies here, so nobody need look for the dead."""
GENTLE: dict[str, float] = {
    name: getattr(Settings(), name) for name in ("ramp", "new_share", "returned_rate")
}
AT_ONCE: dict[str, float] = {"ramp": 0.0, "new_share": 0.0, "returned_rate": 1e9}


@dataclass(frozen=True)
class Scene:
    """What is simulated. A run is an agent: it asks the model, then works on the answer, and that some times over."""

    workers: int = 50
    slots: int = 100
    """Runs that a worker executes at once."""
    returned: int = 5_000
    """Runs that were under way when the fleet was replaced."""
    turns_left_max: int = 6
    """Return how often a submitter still has to ask: a random number up to the limit."""
    new_rate: float = 20.0
    """New runs a second, at random."""
    new_seconds: float = 40.0
    """How long they go on coming."""
    new_turns: int = 3
    limit: int = 3_000
    """Calls that the model API bears at once; more are refused."""
    call_seconds: float = 1.5
    """What a call takes when nothing else is under way; twice that at the limit."""
    refusal_seconds: float = 0.1
    work_seconds: float = 2.5
    """What a run does between two calls."""
    seed: int = 1


class TooManyRequests(Exception):
    """429."""


Ask = Callable[[str, int], Awaitable[int]]


@dataclass
class Service:
    """A model API that all share: the busier, the slower; above its limit it refuses."""

    scene: Scene
    chance: random.Random
    in_flight: int = 0
    accepted: int = 0
    busy: list[tuple[float, int]] = field(default_factory=list)
    """Calls in flight, from each moment on at which that changed; those that get refused too."""
    refused: list[float] = field(default_factory=list)
    begun: dict[str, float] = field(default_factory=dict)
    """When each run made its first call."""
    answered: Counter[tuple[str, int]] = field(default_factory=Counter)

    async def ask(self, run: str, turn: int) -> int:
        now = asyncio.get_running_loop().time()
        self.begun.setdefault(run, now)
        self._change(now, 1)
        try:
            if self.accepted >= self.scene.limit:
                self.refused.append(now)
                await asyncio.sleep(self.scene.refusal_seconds)
                raise TooManyRequests
            self.accepted += 1
            try:
                await asyncio.sleep(self._seconds())
            finally:
                self.accepted -= 1
            self.answered[run, turn] += 1
            return turn
        finally:
            self._change(asyncio.get_running_loop().time(), -1)

    def _seconds(self) -> float:
        load = self.accepted / self.scene.limit
        return self.scene.call_seconds * (1 + load) * self.chance.uniform(0.8, 1.2)

    def _change(self, now: float, by: int) -> None:
        self.in_flight += by
        self.busy.append((now, self.in_flight))


@dataclass
class Outcome:
    """What was seen, in seconds since the new fleet started."""

    scene: Scene
    settings: dict[str, float]
    busy: list[tuple[float, int]]
    refused: list[float]
    begun_returned: list[float]
    begun_new: list[float]
    new_waits: list[tuple[float, float]]
    """When each new run was submitted, and how long it waited for its first step."""
    returned_done: list[float]
    """When each returned run ended."""
    answered: Counter[tuple[str, int]]
    statuses: Counter[str]
    lives_max: int

    @property
    def peak(self) -> int:
        return max(count for _, count in self.busy)

    @property
    def waits(self) -> list[float]:
        return sorted(wait for _, wait in self.new_waits)


def agent(ask: Ask, scene: Scene) -> Workflow[..., int]:
    """The workflow that every run is of; `ask` is the world outside."""
    chance = random.Random(scene.seed + 1)

    @step(name="ask", retries=1_000, backoff=1.0, backoff_max=30.0, retry_on=TooManyRequests)
    async def ask_model(turn: int) -> int:
        return await ask(current().id, turn)

    @step(name="work")
    async def work(turn: int) -> int:
        await asyncio.sleep(scene.work_seconds * chance.uniform(0.5, 1.5))
        return turn

    @workflow(name="agent")
    async def agent(first: int, turns: int) -> int:
        for turn in range(first, turns):
            await ask_model(turn)
            await work(turn)
        return turns

    return agent


def burst(scene: Scene) -> bytes:
    """Return a store in which this many runs were begun and interrupted, all at one moment."""
    chance, clock = random.Random(scene.seed), VirtualClock()
    forever = asyncio.Event()
    under_way = 0

    async def ask(_: str, turn: int) -> int:
        """The first call is answered at once; in the second the deploy interrupts them all."""
        nonlocal under_way
        if turn:
            under_way += 1
            await forever.wait()
        return turn

    async def main() -> bytes:
        flow = agent(ask, scene)
        store = SQLiteStore(None, clock=clock)
        old = _app(store, worker=True, workflows=[flow], concurrency=scene.returned, **AT_ONCE)
        async with old:
            calls = [
                flow(0, 1 + chance.randint(1, scene.turns_left_max)) for _ in range(scene.returned)
            ]
            await old.submit_many(
                calls, ids=[f"returned-{number}" for number in range(scene.returned)]
            )
            while under_way < scene.returned:
                await asyncio.sleep(0.5)
        image = image_of(store)
        store.close()
        return image

    return clock.run(main())


def recovery(scene: Scene, image: bytes, settings: dict[str, float]) -> Outcome:
    """A new fleet on that store, until everything has ended."""
    claimer._chance.seed(scene.seed)
    step_attempts._jitter.seed(scene.seed)
    clock = VirtualClock()
    clock.advance(3_600.0)
    store = open_image(image, clock=clock)
    service = Service(scene, random.Random(scene.seed + 2))
    flow = agent(service.ask, scene)
    try:
        submitted, began = clock.run(_live(scene, store, flow, settings))
        return _outcome(scene, settings, store, service, submitted, began)
    finally:
        store.close()


async def _live(
    scene: Scene, store: SQLiteStore, flow: Workflow[..., int], settings: dict[str, float]
) -> tuple[dict[str, float], float]:
    """When each new run was submitted, and when the fleet started."""
    chance, loop = random.Random(scene.seed + 3), asyncio.get_running_loop()
    submitted: dict[str, float] = {}
    async with AsyncExitStack() as fleet:
        began = loop.time()
        for _ in range(scene.workers):
            app = _app(store, worker=True, workflows=[flow], concurrency=scene.slots, **settings)
            await fleet.enter_async_context(app)
        client = await fleet.enter_async_context(_app(store))
        while True:
            await asyncio.sleep(chance.expovariate(scene.new_rate))
            if loop.time() - began > scene.new_seconds:
                break
            id = f"new-{len(submitted)}"
            submitted[id] = loop.time()
            await client.submit(flow(0, scene.new_turns), id=id)
        while any(queue.queued or queue.running for queue in await client.queues()):
            await asyncio.sleep(1.0)
    return submitted, began


def _outcome(
    scene: Scene,
    settings: dict[str, float],
    store: SQLiteStore,
    service: Service,
    submitted: dict[str, float],
    began: float,
) -> Outcome:
    rows = store._read("SELECT id, status, ended, lives FROM runs")
    returned = [row for row in rows if row[0].startswith("returned-")]
    zero = VirtualClock().start + began
    return Outcome(
        scene=scene,
        settings=settings,
        busy=[(at - began, count) for at, count in service.busy],
        refused=[at - began for at in service.refused],
        begun_returned=sorted(
            at - began for id, at in service.begun.items() if id not in submitted
        ),
        begun_new=sorted(service.begun[id] - began for id in submitted),
        new_waits=[(at - began, service.begun[id] - at) for id, at in submitted.items()],
        returned_done=sorted(ended - zero for _, _, ended, _ in returned),
        answered=service.answered,
        statuses=Counter(status for _, status, _, _ in rows),
        lives_max=max(lives for *_, lives in returned),
    )


def _app(store: SQLiteStore, **settings: Any) -> Outlast:
    app = Outlast(_Kept(store), **OUTSIDE, **settings)
    app._lifecycle.mode = INLINE
    return app
