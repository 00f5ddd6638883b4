"""The state of the model: plain Python over dicts."""

from collections import Counter

from outlast.store.commands import ITEM
from outlast.store.rows import ENDED
from outlast.testing.conformance import ManualClock
from store_model.rows import DrainReport, Limits, Run, Worker


class State:
    """What the store holds, and the transitions that several commands share."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.runs: dict[str, Run] = {}
        self.workers: dict[str, Worker] = {}
        self.drains: dict[str, DrainReport] = {}
        self.gone: set[str] = set()
        """Workers whose lock is free, so that they are dead."""
        self.last_beat: float | None = None
        """The last heartbeat of workers that are gone. None if the store does not know it."""
        self.queues: dict[str, Limits] = {}
        self.worker_deaths: set[tuple[float, str, int]] = set()
        """When which worker died, and the order of each run that is charged, or 0."""
        self.beat = self.awake = 0.0
        self.fence = 0
        self.count = 0

    @property
    def now(self) -> float:
        return self.clock.now

    def by_pk(self, pk: int) -> Run | None:
        return next((run for run in self.runs.values() if run.pk == pk), None)

    def grant_fence(self, run: Run, fence: int) -> None:
        assert fence > self.fence, "a fence only grows"
        self.fence = run.fence = fence

    def begin_undo(self, run: Run, verdict: str) -> None:
        run.void("queued")
        run.undoing, run.due, run.ended, run.cancel, run.waits = verdict, self.now, None, None, ()
        run.deaths_in_a_row = run.interruptions_in_a_row = 0
        run.interrupted = self.now if run.interrupted is None else run.interrupted
        run.settled_by = None
        run.make_ready()
        run.append_mark("undoing")

    def may_need_undo(self, run: Run) -> bool:
        return run.has("intent", "compensation", "child") or any(
            one.parent == run.id for one in self.runs.values()
        )

    def interrupt(
        self, run: Run, due: float, drain: str | None = None, seen: float | None = None
    ) -> str:
        run.forgive()
        run.interruptions += 1
        run.interruptions_in_a_row += 1
        run.interrupted = self.now if run.interrupted is None else run.interrupted
        dead = run.interruptions_in_a_row >= run.interruptions_max
        status = self.give_back(run, "dead" if dead else "queued", due)
        run.append_mark("interruption")
        if drain is not None and status == "queued":
            run.left = (drain, self.now if seen is None else seen)
        return status

    def give_back(self, run: Run, status: str, due: float) -> str:
        if run.workflow == ITEM and run.cancel is not None:
            status = "cancelled"
        run.given_back_by = run.fence
        run.void(status)
        run.due = due
        if status in ENDED:
            run.ended = self.now
            self.wake_parent(run)
        elif due <= self.now:
            run.make_ready()
        return status

    def wake_parent(self, run: Run) -> None:
        parent = self.runs.get(run.parent or "")
        if parent is not None:
            self.wake(parent)

    def wake(self, run: Run) -> None:
        if run.status == "waiting":
            run.due = min(run.due, self.now)
            run.make_ready()

    def running(self, queue: str) -> int:
        runs = [run for run in self.runs.values() if run.queue == queue and run.parent is None]
        return sum(run.status == "running" for run in runs)

    def held(self, worker: str) -> list[Run]:
        return [run for run in self.runs.values() if run.worker == worker]

    def seem_dead(self) -> set[str]:
        return {
            id for id, worker in self.workers.items() if id in self.gone or worker.until <= self.now
        }

    def no_gap(self) -> bool:
        pause = min((worker.lease for worker in self.workers.values()), default=0.0) / 2
        return 0 <= self.now - self.beat <= pause

    def note_beat(self) -> None:
        if not self.no_gap():
            self.awake = self.now
            for worker in self.workers.values():
                if worker.until > self.now + worker.lease + 1:
                    worker.until = self.now + worker.lease
        self.beat = self.now

    def counts(self) -> dict[str, Counter[str]]:
        return {
            name: Counter(run.status for run in self.runs.values() if run.queue == name)
            for name in self.queues
        }
