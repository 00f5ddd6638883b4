import logging
import sys

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from span_tools import Sent
from telemetry_tools import PROGRAMS, Worker

from outlast.logs import JSONFormatter, TextFormatter

sys.path.insert(0, str(PROGRAMS))


@pytest.fixture
def start(tmp_path):
    """Start workers that are killed after the test."""
    workers: list[Worker] = []

    def start(**options) -> Worker:
        workers.append(Worker(tmp_path, **options))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()


class Heard(logging.Handler):
    """Every record of every logger, as each kind of handler would write it."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.records: list[logging.LogRecord] = []
        self._formatters = (
            JSONFormatter(),
            TextFormatter(),
            logging.Formatter("%(message)s %(name)s"),
        )

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def text(self) -> str:
        lines = [one.format(record) for record in self.records for one in self._formatters]
        return "\n".join([*lines, *(repr(vars(record)) for record in self.records)])


@pytest.fixture
def heard():
    root, ours = logging.getLogger(), logging.getLogger("outlast")
    before, level, own = root.handlers[:], root.level, ours.level
    handler = Heard()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.DEBUG)
    yield handler
    root.handlers[:] = before
    root.setLevel(level)
    ours.setLevel(own)


@pytest.fixture
def sent(monkeypatch) -> Sent:
    """Collect the spans of this process in memory."""
    return Sent(monkeypatch, ParentBased(ALWAYS_ON))
