"""The heartbeat of a Postgres store can be closed at any moment. No server is needed."""

from __future__ import annotations

import threading

import pytest

from outlast.store.postgres.heartbeat import Heartbeat


@pytest.fixture
def closed_in_between(monkeypatch):
    """A heartbeat that is closed by another thread at the worst moment: one of its threads is made, and not started yet."""
    heartbeat = Heartbeat(None, 0.001, str, [lambda _: False], 1.0)
    monkeypatch.setattr(heartbeat, "_beat_alone", lambda _: None)
    start, errors = threading.Thread.start, []

    def close():
        try:
            heartbeat.close()
        except RuntimeError as error:
            errors.append(error)

    def closing_start(thread):
        if thread.name.startswith("outlast-heart"):
            closer = threading.Thread(target=close)
            start(closer)
            closer.join()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", closing_start)
    yield heartbeat
    heartbeat.close()
    assert errors == []


def test_heartbeat_may_be_closed_while_its_thread_starts(closed_in_between):
    closed_in_between.start({"w"})


def test_heartbeat_may_be_closed_while_its_helper_starts(closed_in_between):
    closed_in_between._workers = {"w"}
    closed_in_between._check()
