"""The Redis store against the plain dict of `store_model`, over sequences of commands that nobody thought of."""

import os
from uuid import uuid4

from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, run_state_machine_as_test
from store_model import Model
from test_model import MODEL_EXAMPLES, WORKERS, StoreMachine, SubmitMany, register

from outlast.store.redis.address import parse
from outlast.store.redis.store import RedisStore
from outlast.testing.conformance import ManualClock

EXAMPLES = MODEL_EXAMPLES // 4
"""An example takes several times as long as on SQLite in memory."""


class KillableStore(RedisStore):
    """Count a released worker as killed and as missed for long enough, so that no test waits a second for it."""

    def __init__(self, place: str, clock: ManualClock, alive: set[str]) -> None:
        super().__init__(parse(place), clock=clock)
        self._alive = alive

    def acquire_liveness(self, worker: str) -> None:
        self._alive.add(worker)

    def release_liveness(self, worker: str) -> None:
        self._alive.discard(worker)

    def _gone(self) -> list[str]:
        return [row.id for row in self.workers() if row.id not in self._alive]


class RedisMachine(StoreMachine):
    server = ""

    @initialize()
    def open(self) -> None:
        self.clock, self.alive = ManualClock(), set()
        self.place = f"{self.server}?prefix={uuid4().hex}"
        self.store = KillableStore(self.place, self.clock, self.alive)
        self.store.open()
        self.model = Model(self.clock)
        self.lives, self.records = [], []
        self.commit([register(worker) for worker in WORKERS[:2]])
        self.commit(
            [SubmitMany(tuple(self.new(0, y, y % 4)._replace(depth_max=None) for y in range(5)))]
        )

    def the_store_is_opened_again(self) -> None:
        self.store.close()
        self.store = KillableStore(self.place, self.clock, self.alive)
        self.store.open()
        for worker in set(WORKERS) - self.model.gone:
            self.store.acquire_liveness(worker)


def test_any_sequence_of_commands_leaves_what_the_model_says(redis_server):
    machine = type("Machine", (RedisMachine,), {"server": redis_server.url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=20,
            derandomize=bool(os.environ.get("CI")),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
