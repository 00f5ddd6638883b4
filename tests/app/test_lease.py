"""The lease: renewed from a thread of its own, at intervals that differ, and not while the loop stands still."""

import threading
import time
from queue import Empty

from outlast.app.lease import Lease
from outlast.app.worker import Worker
from outlast.store.verbs import WORKER, Refused
from outlast.testing import App


class Pauses:
    """Instead of the event that ends a lease's thread: notes what it would wait for, and ends it after so many times."""

    def __init__(self, count):
        self.seconds, self._count = [], count

    def wait(self, seconds):
        self.seconds.append(seconds)
        return len(self.seconds) > self._count

    def is_set(self):
        return False


class Renewals:
    def __init__(self, outcome=None):
        self.threads, self._outcome = [], outcome

    def call(self, verb, timeout):
        assert (verb.worker, verb.lease, timeout) == ("w", 30.0, 30.0)
        self.threads.append(threading.current_thread().name)
        return self._outcome


def lease(pauses, renewals, *, stall_max=20.0, lost=lambda: None):
    made = Lease(renewals, "w", 30.0, stall_max, lost)
    made._stop = pauses
    return made


def test_renewals_come_from_a_thread_of_their_own_at_intervals_that_differ():
    pauses, renewals = Pauses(50), Renewals()
    made = lease(pauses, renewals)
    made.start()
    made._thread.join(10)
    assert renewals.threads == ["outlast-lease"] * 50
    assert all(8.0 <= seconds <= 10.0 for seconds in pauses.seconds), "well within the lease"
    assert len(set(pauses.seconds)) > 40, "a fleet that started together does not renew together"


def test_nothing_is_renewed_while_the_loop_stands_still_and_it_is_said_once(caplog):
    renewals = Renewals()
    made = lease(Pauses(5), renewals)
    made.loop_seen = time.monotonic() - 21
    made._renew()
    assert renewals.threads == []
    assert caplog.text.count("has stood still") == 1


def test_a_renewal_that_is_refused_is_told_once_and_ends_the_thread():
    told = []
    pauses = Pauses(5)
    lease(pauses, Renewals(Refused(WORKER, "swept")), lost=lambda: told.append("lost"))._renew()
    assert told == ["lost"]
    assert len(pauses.seconds) == 1


def test_a_renewal_that_gets_no_answer_is_said_to_have_none_and_the_next_is_tried(caplog):
    class Silent:
        def call(self, verb, timeout):
            raise Empty

    lease(Pauses(2), Silent())._renew()
    assert [one.getMessage() for one in caplog.records] == [
        "worker w could not renew its lease: no answer"
    ] * 2


def test_who_asks_from_another_thread_how_long_the_loop_stands_still_may_do_so_while_the_worker_leaves(
    monkeypatch,
):
    """The lease is gone between any two looks at it: /health is asked in the server's thread."""

    async def main(app) -> None:
        worker = app._open.worker
        looks = [None, lease(Pauses(0), Renewals())]
        monkeypatch.setattr(Worker, "_lease", property(lambda _: looks.pop()), raising=False)
        assert worker.stalled() == 0.0
        monkeypatch.undo()

    App().do(main)
