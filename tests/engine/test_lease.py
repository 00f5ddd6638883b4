"""The lease is renewed by its own thread, and not while the loop is blocked."""

import threading
import time

from outlast.engine.lease import Lease
from outlast.engine.registration import WorkerRegistration
from outlast.errors import StoreUnavailable
from outlast.store.commands import WORKER, Refused
from outlast.testing import App
from support.waiting import WAIT_SECONDS


class Pauses:
    """Replace the event that ends a lease's thread. Note each wait, and end the thread after this many."""

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

    def execute_urgent(self, command, timeout):
        assert (command.worker, command.lease, timeout) == ("w", 30.0, 10.0)
        self.threads.append(threading.current_thread().name)
        return self._outcome


def lease(pauses, renewals, *, stall_max=20.0, lost=lambda: None, read=lambda worker: None):
    made = Lease(renewals, "w", 30.0, stall_max, lost, read)
    made._stop = pauses
    return made


def test_lease_is_renewed_by_its_own_thread_with_jitter():
    pauses, renewals = Pauses(50), Renewals()
    made = lease(pauses, renewals)
    made.start()
    made._thread.join(WAIT_SECONDS)
    assert renewals.threads == ["outlast-lease"] * 50
    assert all(8.0 <= seconds <= 10.0 for seconds in pauses.seconds), "well within the lease"
    assert len(set(pauses.seconds)) > 40, "a fleet that started together does not renew together"


def test_lease_is_not_renewed_while_the_loop_is_blocked_and_logs_it_once(caplog):
    renewals = Renewals()
    made = lease(Pauses(5), renewals)
    made.loop_seen = time.monotonic() - 21
    made._renew()
    assert renewals.threads == []
    assert caplog.text.count("has been blocked") == 1


def test_refused_renewal_is_reported_once_and_ends_the_thread():
    told = []
    pauses = Pauses(5)
    lease(pauses, Renewals(Refused(WORKER, "swept")), lost=lambda: told.append("lost"))._renew()
    assert told == ["lost"]
    assert len(pauses.seconds) == 1


def test_unanswered_renewal_is_logged_and_tried_again_sooner(caplog):
    class Silent:
        def execute_urgent(self, command, timeout):
            raise StoreUnavailable("no answer within 10 s")

    pauses = Pauses(2)
    made = lease(pauses, Silent())
    made._renew()
    assert [one.getMessage() for one in caplog.records] == [
        "Worker w could not renew its lease: no answer within 10 s"
    ]
    assert made.trouble == "no answer within 10 s"
    assert all(seconds <= 2.5 for seconds in pauses.seconds[1:]), (
        "sooner than a renewal that succeeded"
    )


def test_a_worker_that_cannot_read_does_not_renew_its_lease(caplog):
    answers = [StoreUnavailable("no answer"), StoreUnavailable("no answer"), None]
    read = []

    def reads(worker):
        read.append(worker)
        if (error := answers.pop(0)) is not None:
            raise error

    renewals = Renewals()
    made = lease(Pauses(3), renewals, read=reads)
    made._renew()
    assert read == ["w"] * 3
    assert len(renewals.threads) == 1
    assert made.trouble is None
    assert [one.getMessage() for one in caplog.records] == [
        "Worker w could not renew its lease: no answer",
        "Worker w renews its lease again.",
    ]


def test_recent_read_is_not_repeated_before_a_renewal():
    def read(worker):
        raise AssertionError("it has read already")

    renewals = Renewals()
    made = lease(Pauses(1), renewals, read=read)
    made.read_at = time.monotonic() + 60
    made._renew()
    assert len(renewals.threads) == 1


def test_stalled_can_be_asked_from_another_thread_while_the_worker_leaves(
    monkeypatch,
):
    """The lease is gone between any two looks at it: /health is asked in the server's thread."""

    async def main(app) -> None:
        worker = app._open.worker
        looks = [None, lease(Pauses(0), Renewals())]
        monkeypatch.setattr(
            WorkerRegistration, "_lease", property(lambda _: looks.pop()), raising=False
        )
        assert worker.stalled() == 0.0
        monkeypatch.undo()

    App().do(main)
