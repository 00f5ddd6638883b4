"""Poll the store for `/metrics`.

Only the store knows totals over all processes, and what an exited process can no longer report.

There are two polls. The quick poll runs at most every few seconds and reads the depths of this
worker's own queues, the outcomes of drains, and the workers. The whole poll goes through every run.
It runs less often the more it costs and the more workers there are, but its numbers are never much
older than two minutes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from outlast.codec.percentiles import nearest_rank
from outlast.codec.text import safe
from outlast.errors import StoreError
from outlast.shutdown.report import UNREADABLE_REPORT, DrainReport
from outlast.store.fleet import Fleet
from outlast.store.rows import DrainRow, QueueRow
from outlast.telemetry import names
from outlast.telemetry.meters import Bounded
from outlast.telemetry.names import DRAIN_ENDS, QUANTILES, RECENT_SECONDS, STATUSES
from outlast.telemetry.samples import Sample, gauge

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

log = logging.getLogger("outlast.telemetry")

EVERY_SECONDS = 5.0
"""The minimum time between two polls."""
AGE_SECONDS_MAX = 120.0
"""The whole poll is repeated after this time, however much it costs."""
SHOWN_SECONDS_MAX = 300.0
"""Older numbers are not shown. All workers report the same store, and queries take the maximum. A
worker that can no longer reach the store, or that drains for an hour, would report stale numbers
for all.
"""
SHARE = 20.0
"""The result of the whole poll is kept for this many times its duration."""
WITHIN_SECONDS = 2.0
"""How long a request for metrics waits for a poll. After that it gets the last result."""
DRAINS_MAX = 1_000
DRAINS_FEW = 20
SWEPT_SECONDS = 3_600.0
"""How much later than its grace a drain may have ended. Reports are listed by their start."""


class Quick(NamedTuple):
    at: float
    depths: dict[str, int]
    workers: Counter[str]
    drains: Recent


class Whole(NamedTuple):
    at: float
    now: float
    """The store's time of the poll."""
    rows: list[QueueRow]


class Recent(NamedTuple):
    """The outcomes of the drains of the last 15 minutes."""

    ends: Counter[str]
    runs: Counter[str]
    seconds: list[float]
    not_checkpointed: int


class StoreStatsPoller:
    """Poll the store for one engine, at most one poll at a time.

    `refresh` may be called from any thread but the event loop's.
    """

    def __init__(self, engine: Engine, queues_max: int) -> None:
        self._engine = engine
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._under_way: threading.Event | None = None
        self._since = 0.0
        self._quick: Quick | None = None
        self._whole: Whole | None = None
        self._keep = EVERY_SECONDS
        self._up = True
        self._queues: dict[str, None] = {}
        """The queues that are shown by name: the first ones stay."""
        self._queues_max = queues_max
        self._depths = Bounded(names.QUEUE_DEPTH, queues_max)

    def refresh(self, within: float = WITHIN_SECONDS) -> None:
        """Poll the store if the last result is too old, and wait up to `within` seconds for it."""
        engine = self._engine
        with self._lock:
            if engine.shutdown.closing:
                return
            under_way = self._under_way
            if under_way is None:
                if not self._due():
                    return
                under_way = self._under_way = threading.Event()
                self._since = time.monotonic()
                self._begin(under_way)
        under_way.wait(within)

    def _begin(self, under_way: threading.Event) -> None:
        poll = threading.Thread(
            target=self._poll, args=(under_way,), name="outlast-look", daemon=True
        )
        if not self._engine.mode.threads:
            poll.run()
            return
        try:
            poll.start()
        except RuntimeError as error:
            # There are too many threads.
            self._missed(error)
            self._over(under_way)

    def _due(self) -> bool:
        now = time.monotonic()
        return self._quick is None or now - self._quick.at >= EVERY_SECONDS or self._whole_due(now)

    def _whole_due(self, now: float) -> bool:
        """Return whether the whole poll is due.

        It never is during a drain: a long read would delay closing the store.
        """
        return not self._engine.shutdown.begun and (
            self._whole is None or now - self._whole.at >= self._keep
        )

    def _poll(self, under_way: threading.Event) -> None:
        try:
            self._quick = self._poll_quick()
            if self._whole_due(time.monotonic()):
                self._whole = self._poll_whole()
            self._up = True
        except Exception as error:
            # Whatever the error, the metrics report that the store is down.
            self._missed(error)
        finally:
            self._over(under_way)

    def _missed(self, error: Exception) -> None:
        self._up = self._engine.shutdown.closing
        log.log(
            logging.DEBUG if isinstance(error, StoreError) else logging.WARNING,
            "Could not read the store for /metrics: %s", type(error).__name__,
        )  # fmt: skip

    def _over(self, under_way: threading.Event) -> None:
        self._under_way = None
        under_way.set()

    def _poll_quick(self) -> Quick:
        engine = self._engine
        store, began = engine.store, time.monotonic()
        depths = {queue: store.depth(queue) for queue in self._own()}
        fleet = Fleet.of(store)
        workers = Counter(map(fleet.state, fleet.workers))
        return Quick(began, depths, workers, recent(store.drains, fleet.now, engine.settings.grace))

    def _own(self) -> list[str]:
        """Return the queues that this process takes work from."""
        engine = self._engine
        consumed = [
            queue
            for consumer in list(engine.claimers.consumers)
            for queue in consumer.claimer.queues
        ]
        return list(dict.fromkeys([*engine.worker.offer.queues, *consumed]))

    def _poll_whole(self) -> Whole:
        store, began = self._engine.store, time.monotonic()
        rows = [row for row in store.queues() if _is_whole(row)]
        cost = time.monotonic() - began
        assert self._quick is not None
        crowd = max(1.0, sum(self._quick.workers.values()) / 2)
        self._keep = min(AGE_SECONDS_MAX, max(EVERY_SECONDS, SHARE * cost) * crowd)
        return Whole(began, store.now(), rows)

    # -- samples of the last polls, from memory

    def samples(self) -> Iterator[Sample]:
        quick, whole, now = self._quick, self._whole, time.monotonic()
        hangs = self._under_way is not None and now - self._since > WITHIN_SECONDS
        yield gauge(names.STORE_UP, float(self._up and not hangs))
        for kind, poll in (("quick", quick), ("whole", whole)):
            yield gauge(names.STORE_AGE, now - (self._began if poll is None else poll.at), kind)
        quick = None if quick is None or now - quick.at > SHOWN_SECONDS_MAX else quick
        whole = None if whole is None or now - whole.at > SHOWN_SECONDS_MAX else whole
        if quick is not None:
            yield from _of_drains(quick.drains)
            for status in ("alive", "draining", "dead"):
                yield gauge(names.WORKERS, quick.workers[status], status)
        yield from self._of_queues({} if quick is None else quick.depths, whole)

    def _of_queues(self, own: dict[str, int], whole: Whole | None) -> Iterator[Sample]:
        """Yield the samples of all queues.

        This process's own queues come first, so they keep their names, however many queues there
        are.
        """
        depths: Counter[str] = Counter()
        oldest: dict[str, float] = {}
        returned: dict[str, float] = {}
        runs: Counter[tuple[str, str]] = Counter()
        for queue, depth in own.items():
            depths[self._label(queue)] += depth
        if whole is not None:
            for row in whole.rows:
                name = self._label(row.name)
                depths[name] += 0 if row.name in own else row.ready
                _oldest(oldest, name, whole.now, row.oldest)
                _oldest(returned, name, whole.now, row.returned_since)
                for status in STATUSES:
                    runs[name, status] += getattr(row, status)
        for name in depths:
            yield gauge(names.QUEUE_DEPTH, depths[name], name)
            if whole is None:
                # Only the whole poll knows the rest.
                continue
            yield gauge(names.QUEUE_OLDEST, oldest.get(name, 0.0), name)
            yield gauge(names.QUEUE_RETURNED, returned.get(name, 0.0), name)
            for status in STATUSES:
                yield gauge(names.QUEUE_RUNS, runs[name, status], name, status)

    def _label(self, queue: str) -> str:
        # Any client that can write to the store chooses queue names.
        queue = safe(queue)
        if queue not in self._queues:
            (label,) = self._depths.folded((queue,), len(self._queues))
            if label != queue:
                return label
            self._queues[queue] = None
        return queue


def _is_whole(row: QueueRow) -> bool:
    """Return whether the row consists of a name and numbers.

    A file may contain anything. A bad row must not hide the numbers of other queues.
    """
    name, *numbers = row
    return isinstance(name, str) and all(
        one is None or isinstance(one, (int, float)) for one in numbers
    )


def _oldest(ages: dict[str, float], name: str, now: float, since: float | None) -> None:
    if since is not None:
        ages[name] = max(ages.get(name, 0.0), now - since)


# -- drains


def recent(drains: Callable[[int], Sequence[DrainRow]], now: float, grace: float) -> Recent:
    """Return the outcomes of the drains that ended in the last 15 minutes.

    More reports are read only if the newest few may not include all of them, judged by this
    process's grace.
    """
    rows = drains(DRAINS_FEW)
    if len(rows) >= DRAINS_FEW and _is_after(
        rows[-1].began, now - RECENT_SECONDS - SWEPT_SECONDS - grace
    ):
        rows = drains(DRAINS_MAX)
    found = Recent(Counter(), Counter(), [], 0)
    missed = 0
    for row in rows:
        if not _is_after(row.ended, now - RECENT_SECONDS):
            continue
        report = DrainReport.of(row)
        if UNREADABLE_REPORT in report.blocked:
            continue
        found.ends["cut_short" if report.cut_short else "left" if report.left else "clean"] += 1
        for end in DRAIN_ENDS[:-1]:
            found.runs[end] += getattr(report, end)
        found.runs["left"] += len(report.left)
        missed += len(report.not_checkpointed)
        if report.seconds is not None:
            found.seconds.append(report.seconds)
    found.seconds.sort()
    return found._replace(not_checkpointed=missed)


def _is_after(moment: float | None, when: float) -> bool:
    """Return whether a moment is later than `when`.

    Return False for anything but a number: a file may contain anything.
    """
    return isinstance(moment, (int, float)) and moment > when


def _of_drains(found: Recent) -> Iterator[Sample]:
    for end in ("clean", "left", "cut_short"):
        yield gauge(names.RECENT_DRAINS, found.ends[end], end)
    for end in DRAIN_ENDS:
        yield gauge(names.RECENT_DRAIN_RUNS, found.runs[end], end)
    for quantile in QUANTILES:
        seconds = nearest_rank(found.seconds, float(quantile)) if found.seconds else 0.0
        yield gauge(names.RECENT_DRAIN_SECONDS, seconds, quantile)
    yield gauge(names.RECENT_NOT_CHECKPOINTED, found.not_checkpointed)
