"""Workers and drains as rows of a store."""

import json
import socket

from outlast.store.commands import DeregisterWorker, Drain, RegisterWorker, StoreDrainReport

HERE = socket.gethostname()
HOSTILE = "\x1b[2J\x07 [red]\u202e\x9b31m\r\n\x7f"
FORBIDDEN = set("\x1b\x07\x9b\r\x7f\u202e")

REPORT = {
    "seconds": 3.25,
    "layers": {"coordinate": 0.004, "boundary": 2.5, "checkpoint": 3.0, "exit": 3.25},
    "completed": 4, "released": 3, "waiting": 2, "checkpointed": 1, "not_started": 5,
    "left": [{"what": "run", "id": "r9", "step": "crunch#1", "seconds": 12.5, "why": "it was asked to stop and did not"}],
    "not_checkpointed": ["r9 crunch#1"],
    "blocked": ["the event loop was blocked for 1.5 s"],
    "units": {"committed": 2, "rolled_back": 1},
    "cleanup": [{"name": "flush", "seconds": 0.1, "error": None}, {"name": "close", "seconds": 0.2, "error": "OSError()"}],
}  # fmt: skip


def registered(outlast, worker="w1", host=HERE, lease=1e6, concurrency=4, queues=("default",)):
    outlast.commit(RegisterWorker(worker, host, 4242, lease, queues, ("report",), concurrency))


def drained(outlast, worker="w1", reason="SIGTERM", report=REPORT, **fields):
    registered(outlast, worker, **fields)
    outlast.commit(
        Drain(worker, reason),
        StoreDrainReport(worker, json.dumps(report)),
        DeregisterWorker(worker),
    )
