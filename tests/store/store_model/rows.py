"""The rows of the model."""

from dataclasses import dataclass, field

from outlast.store.rows import NEVER

PROGRESS = ("step", "attempt", "inner", "child", "done")
"""Kinds of entries that are progress of a run."""


@dataclass
class Run:
    id: str
    order: int
    """Grows with each submitted run."""
    workflow: str
    args: str
    queue: str
    priority: int
    parent: str | None
    token: str
    due: float
    attempts_max: int
    interruptions_max: int
    abandon_after: float | None = None
    key: str | None = None
    turn: float | None = None
    claimed_turn: float | None = None
    started_at: float | None = None
    pk: int | None = None
    """The number in the store. None until it is read back."""
    status: str = "queued"
    fence: int = 0
    worker: str | None = None
    ready: int = 0
    lives: int = 0
    started: bool = False
    ended: float | None = None
    interrupted: float | None = None
    deaths: int = 0
    interruptions: int = 0
    deaths_in_a_row: int = 0
    interruptions_in_a_row: int = 0
    failures: int = 0
    cancel: str | None = None
    value: str | None = None
    waits: tuple[str, ...] = ()
    undoing: str | None = None
    mark: int = 0
    left: tuple[str, float] | None = None
    """The draining worker that left it, and when. None once it is claimed again."""
    settled_by: int | None = None
    given_back_by: int | None = None
    journal: list[tuple[str, str | None]] = field(default_factory=list)
    """The kind of each entry, and the value if an execution recorded it."""
    recorded: dict[int, int] = field(default_factory=dict)
    """The fence of each entry that an execution recorded, by seq."""
    mail: dict[tuple[str, str], str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def void(self, status: str) -> None:
        self.status, self.fence, self.worker = status, -abs(self.fence), None
        self.ready, self.turn = 0, None

    def claimable(self) -> bool:
        return self.status in ("queued", "waiting")

    def make_ready(self) -> None:
        level = 2 if self.deaths_in_a_row >= 2 else 1
        if self.key is None or self.undoing is not None or self.turn is not None:
            self.ready = level
        else:
            self.ready = -level if self.started else -3

    def lane(self) -> tuple[str, int]:
        """Return the lane of a run with a key that is due."""
        new = not self.started
        return self.workflow, self.ready if self.ready < 0 else -3 if new else -self.ready

    def progress(self) -> bool:
        """Return whether the current execution has recorded anything of its own."""
        mine = {seq for seq, fence in self.recorded.items() if fence == abs(self.fence)}
        return any(
            kind in PROGRESS and seq in mine
            for seq, (kind, _) in enumerate(self.journal, 1)
            if seq > self.mark
        )

    def forgive(self) -> None:
        """Reset the counts of consecutive deaths and interruptions after progress."""
        if self.progress():
            self.deaths_in_a_row = self.interruptions_in_a_row = 0

    def append_mark(self, kind: str) -> None:
        self.journal.append((kind, None))
        self.mark = len(self.journal)

    def has(self, *kinds: str) -> bool:
        return any(kind in kinds for kind, _ in self.journal)

    def place(self) -> tuple[float, ...]:
        """Return its place in the order of claims."""
        return (
            -self.priority,
            NEVER if self.interrupted is None else self.interrupted,
            self.due if self.turn is None else self.turn,
            self.order,
        )

    def place_in_lane(self) -> tuple[float, ...]:
        """Return its place among the runs of its key."""
        since = NEVER if self.interrupted is None else self.interrupted
        return (-self.priority, since, self.due, self.order)


@dataclass
class Worker:
    """A registered worker."""

    lease: float
    until: float
    started: float
    queues: tuple[str, ...]
    draining: bool = False
    renewed: float = 0.0


@dataclass
class DrainReport:
    """The report of a drain."""

    reason: str
    began: float
    held: int
    ended: float | None = None
    recoveries: dict[int, float] = field(default_factory=dict)
    """How long each run that the worker left was waiting, by the run's order."""


@dataclass
class Limits:
    """A queue's own limits."""

    depth_max: int | None = None
    concurrency_max: int | None = None
    key_concurrency_max: int | None = None
    key_starts_max: int | None = None
    key_period: float | None = None
    paused: bool = False
