"""Abandonment on SQLite depends on the locks of workers; its error can be pickled."""

import pickle

import pytest

from outlast.errors import Abandoned
from outlast.store.commands import Claim, RegisterWorker, Release, Submit
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.conformance import ManualClock


@pytest.mark.parametrize("alive", [True, False])
def test_dead_worker_that_is_not_swept_does_not_count_as_a_taker(alive):
    clock = ManualClock()
    store = SQLiteStore(None, clock=clock)
    store.open()
    for worker in ("w1", "w2"):
        store.acquire_liveness(worker)
    store.commit(
        [RegisterWorker("w1", "host", 1, 1000.0, ("q",)), RegisterWorker("w2", "host", 1, 1000.0)]
    )
    submit = Submit("r", "flow", "[]", "t", "s", queue="q", worker="w2", abandon_after=10.0)
    row = store.commit([submit])[0].row
    store.commit([Release(row.pk, row.fence, "drain")])
    clock.forward(20)
    if not alive:
        store.release_liveness("w1")
    ((claimed,),) = store.commit([Claim("w2", "c", queues=("q",))])
    assert (claimed.undoing is not None) == alive
    store.close()


def test_abandonment_survives_being_pickled():
    error = pickle.loads(pickle.dumps(Abandoned("r", 12.5)))
    assert (error.id, error.seconds, str(error)) == ("r", 12.5, str(Abandoned("r", 12.5)))
