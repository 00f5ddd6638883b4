"""The Postgres store agrees with the model of test_model on generated sequences of commands."""

import time
from unittest import mock

import test_model
from hypothesis import Phase, settings
from hypothesis.stateful import initialize, run_state_machine_as_test
from test_model import MODEL_EXAMPLES, WORKERS, StoreMachine

from outlast.store.postgres.store import PostgresStore
from support.postgres_schemas import Sessions, connected, emptied, schema_of_this_process


class PostgresMachine(StoreMachine):
    address = ""

    @initialize()
    def open(self) -> None:
        emptied(self.address)
        with mock.patch.object(
            test_model, "EmptyStore", lambda clock: PostgresStore.at(self.address, clock=clock)
        ):
            super().open()

    def a_process_is_killed(self, worker: str) -> None:
        """Its session has gone and its heartbeat has stopped, which all see at once."""
        self.store.release_liveness(worker)
        with connected(self.address) as db:
            while db.execute(
                "SELECT 1 FROM presence WHERE worker = %s AND beat > 0", (worker,)
            ).fetchone():
                time.sleep(0.002)
            db.execute(
                "INSERT INTO presence (worker, beat, every, server) VALUES (%s, 0, 0.2, pg_postmaster_start_time())"
                " ON CONFLICT (worker) DO UPDATE SET beat = 0",
                (worker,),
            )
        self.model.gone.add(worker)
        self.model.last_beat = 0.0

    def the_store_is_opened_again(self) -> None:
        self.store.close()
        self.store = PostgresStore.at(self.address, clock=self.clock)
        self.store.open()
        for worker in set(WORKERS) - self.model.gone:
            self.store.acquire_liveness(worker)


def test_store_does_what_the_model_says(postgres_server) -> None:
    with schema_of_this_process(postgres_server.url, "model") as address, Sessions().kept():
        machine = type("Machine", (PostgresMachine,), {"address": address})
        run_state_machine_as_test(
            machine,
            settings=settings(
                StoreMachine.TestCase.settings,
                max_examples=MODEL_EXAMPLES // 4,
                stateful_step_count=8,
                phases=(Phase.generate,),
            ),
        )
