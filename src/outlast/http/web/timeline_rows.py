"""Turn the document of a timeline into rows with bars, and handovers between executions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from outlast.http.web.rendering import moment_of
from outlast.http.web.time_axis import Place, TimeAxis

HANDOVERS_MAX = 12
"""How many handovers are drawn through the bars of all rows."""
ABOUT_THE_RUN = ("retry", "resume", "cancel", "failure", "undoing")
POINTS = ("message", "fired", "publish", "session", "items")
ENDS = {
    "death": "Worker died",
    "interruption": "Interrupted",
    "waiting": "Released while waiting",
    "undoing": "Compensation began",
    "parked": "Parked",
    "failed": "Failed",
    "cancelled": "Cancelled",
    "dead": "Became a dead letter",
}
"""How an execution ended, by the kind of its last entry or by the status that it left."""
RELEASED = "Released"


class Bar(NamedTuple):
    place: Place
    kind: str
    """The class: ok, bad, unknown, child, running, void."""


@dataclass(slots=True)
class Row:
    """What one call of the workflow did within one execution."""

    key: str
    kind: str
    entries: list[dict[str, Any]]
    bars: list[Bar] = field(default_factory=list)
    began: float = 0.0
    seconds: float | None = None
    state: str = "ok"
    child: dict[str, Any] | None = None
    effect: dict[str, Any] | None = None
    progress: Any = None
    has_progress: bool = False
    executing: dict[str, Any] | None = None
    """The attempt that executes now."""
    number: int = 0
    """The sequence number of its last entry, for its address. 0: it has none yet."""

    @property
    def attempts(self) -> int:
        """Return how many attempts have begun, as far as it is recorded."""
        if self.executing is not None:
            return int(self.executing["attempt"])
        return max((one["attempt"] or 1 for one in self.entries), default=1)

    @property
    def words(self) -> Any:
        return self.entries[-1]["words"] if self.entries else None


@dataclass(slots=True)
class Handover:
    """The end of an execution, and how the run continued."""

    entry: dict[str, Any] | None
    kind: str
    """The class: death, interruption, or handover for one without an entry."""
    lost: str | None
    next: str | None
    at: float
    label: str
    """How the execution ended."""
    lost_seconds: float | None = None
    saved_seconds: float | None = None


@dataclass(slots=True)
class Segment:
    """What happened in one execution, and the handover that ended it."""

    fence: int
    worker: str | None
    rows: list[Row]
    handover: Handover | None = None


class Timeline(NamedTuple):
    axis: TimeAxis
    segments: list[Segment]
    executions: list[tuple[Bar, dict[str, Any]]]
    handovers: list[str]
    """Where handovers cross all bars."""


def timeline_of(document: dict[str, Any]) -> Timeline:
    """Return a page of a timeline, ready to be drawn."""
    segments = list(_segments(document))
    _add_open_work(document, segments)
    now = moment_of(document["now"]) or 0.0
    axis = _axis(document, segments, now)
    for segment in segments:
        for row in segment.rows:
            row.bars = list(_bars(row, axis, now))
        segment.rows.sort(key=lambda row: (row.began, row.number))
    handovers = [axis.at(one.handover.at) for one in segments if one.handover is not None]
    return Timeline(axis, segments, _executions(document, axis, now), handovers[:HANDOVERS_MAX])


def _segments(document: dict[str, Any]) -> Iterator[Segment]:
    """Yield the executions of a page of entries."""
    incidents = {one["seq"]: one for one in document["incidents"]}
    executions = {one["fence"]: one for one in document["executions"]}
    effects = {one["place"]: one for one in document["effects"] or ()}
    children = {one["key"]: one for one in document["children"] if one["key"] is not None}
    current: Segment | None = None
    by_key: dict[str, Row] = {}
    for entry in document["rows"]:
        fence = abs(entry["fence"])
        if current is None or current.handover is not None or fence != current.fence:
            if current is not None:
                current.handover = current.handover or _handover(current, fence, executions, entry)
                yield current
            current, by_key = Segment(fence, _worker(executions, fence), []), {}
        if entry["seq"] in incidents:
            incident = incidents[entry["seq"]]
            current.handover = Handover(
                entry,
                entry["kind"],
                incident["lost"],
                incident["next"],
                _ended(executions, fence) or moment_of(entry["at"]) or 0.0,
                ENDS.get(entry["kind"], RELEASED),
                incident["lost_seconds"],
                incident["saved_seconds"],
            )
            continue
        row = by_key.get(entry["key"]) if entry["key"] else None
        if row is None:
            row = Row(entry["key"], entry["kind"], [])
            row.effect, row.child = effects.get(entry["key"]), None
            current.rows.append(row)
            if entry["key"]:
                by_key[entry["key"]] = row
        row.entries.append(entry)
        row.kind, row.number = _stronger(row.kind, entry["kind"]), entry["seq"]
        if entry["kind"] == "child":
            row.child = children.get(entry["key"])
    if current is not None:
        yield current


def _handover(
    segment: Segment, fence: int, executions: dict[int, dict[str, Any]], entry: dict[str, Any]
) -> Handover:
    """Return the handover between executions that no death or drain separates."""
    at = _ended(executions, segment.fence) or moment_of(entry["at"]) or 0.0
    left = executions.get(segment.fence, {}).get("status", "")
    label = ENDS.get(left, RELEASED)
    return Handover(None, "handover", segment.worker, _worker(executions, fence), at, label)


def _worker(executions: dict[int, dict[str, Any]], fence: int) -> str | None:
    one = executions.get(fence)
    return None if one is None else one["worker"]


def _ended(executions: dict[int, dict[str, Any]], fence: int) -> float | None:
    one = executions.get(fence)
    return None if one is None else moment_of(one["ended"])


def _stronger(before: str, kind: str) -> str:
    """Return which of two kinds names a row: that of the outcome."""
    return before if kind in ("attempt", "verify", "decision", "inner") else kind


def _add_open_work(document: dict[str, Any], segments: list[Segment]) -> None:
    """Add open children and unfinished steps to the last page of a run."""
    if document["next"] is not None or document["run"]["ended"] is not None:
        return
    open_rows = [
        Row(one["key"] or one["id"], "child", [], state="running", child=one)
        for one in document["children"]
        if one["ended"] is None
    ]
    running = next((one for one in document["executions"] if one["ended"] is None), None)
    executing, progress = document["executing"], document["progress"]
    if not (open_rows or executing or progress) and running is None:
        return
    fence = segments[-1].fence if running is None and segments else (running or {}).get("fence", 0)
    if not segments or segments[-1].fence != fence:
        segments.append(Segment(fence, (running or {}).get("worker"), []))
    rows = segments[-1].rows
    rows += open_rows
    by_key = {row.key: row for row in rows if row.key}
    for one in executing:
        _open_step(rows, by_key, one["key"], one["kind"]).executing = one
    for one in progress:
        row = _open_step(rows, by_key, one["key"], "step")
        row.progress, row.has_progress = one["value"], True


def _open_step(rows: list[Row], by_key: dict[str, Row], key: str, kind: str) -> Row:
    """Return the row of a step that has not ended. It may have failed attempts already."""
    if key not in by_key:
        by_key[key] = Row(key, kind, [], state="running")
        rows.append(by_key[key])
    return by_key[key]


def _axis(document: dict[str, Any], segments: Sequence[Segment], now: float) -> TimeAxis:
    run = document["run"]
    busy: list[tuple[float, float]] = []
    for segment in segments:
        for row in segment.rows:
            spans = [_interval(entry) for entry in row.entries]
            if row.child is not None:
                spans.append(
                    (moment_of(row.child["started"]), moment_of(row.child["ended"]) or now)
                )
            if row.executing is not None:
                spans.append((moment_of(row.executing["started"]), now))
            known = [(a, b) for a, b in spans if a is not None and b is not None]
            busy += known
            row.began = min((a for a, _ in known), default=now)
    first = min(busy, default=None)
    last = max((b for _, b in busy), default=moment_of(run["ended"]) or now)
    is_first_page = not document["rows"] or document["rows"][0]["seq"] == 1
    began = moment_of(run["started"]) or moment_of(run["created"]) or now
    if not is_first_page and first is not None:
        began = first[0]
    is_last_page = document["next"] is None
    ended = (moment_of(run["ended"]) or max(now, last)) if is_last_page else last
    if is_last_page and run["status"] == "running":
        holder = [one for one in document["executions"] if one["ended"] is None]
        busy += [(max(last, moment_of(one["began"]) or now), now) for one in holder]
    return TimeAxis(busy, min(began, *(a for a, _ in busy)) if busy else began, max(ended, last))


def _interval(entry: dict[str, Any]) -> tuple[float | None, float | None]:
    at = moment_of(entry["at"])
    return moment_of(entry["started"]) or at, at


def _bars(row: Row, axis: TimeAxis, now: float) -> Iterator[Bar]:
    """Yield the bars of a row, one per attempt, and set its state and how long it took."""
    known = [(entry, *_interval(entry)) for entry in row.entries]
    last: float | None = None
    for entry, began, ended in known:
        if began is None or ended is None:
            continue
        row.state = _state(entry)
        if entry["kind"] != "intent" or len(known) == 1:
            # The time of a later attempt counts from the first.
            yield Bar(axis.place(began if last is None else max(began, last), ended), row.state)
        if entry["seconds"] is not None:
            row.seconds = entry["seconds"]
            last = ended
            if entry["kind"] == "attempt":
                last = moment_of(entry["value"]) or ended
    if row.effect is not None and row.effect["state"] == "open":
        row.state = "unknown"
    if row.executing is not None and (began := moment_of(row.executing["started"])) is not None:
        row.seconds, row.state = now - began, "running"
        yield Bar(axis.place(began, now), "running")
    child = row.child
    if child is not None and (began := moment_of(child["started"])) is not None:
        ended = moment_of(child["ended"])
        row.seconds = (now if ended is None else ended) - began
        state = "running" if ended is None else "child"
        yield Bar(axis.place(began, now if ended is None else ended), state)


def _state(entry: dict[str, Any]) -> str:
    if entry["void"]:
        return "void"
    if entry["kind"] == "attempt" or entry["error"] is not None:
        return "bad"
    if entry["kind"] in ("intent", "verify"):
        return "unknown"
    return "point" if entry["kind"] in POINTS else "ok"


def _executions(
    document: dict[str, Any], axis: TimeAxis, now: float
) -> list[tuple[Bar, dict[str, Any]]]:
    """Return the executions that this page's axis covers."""
    found = []
    for one in document["executions"]:
        began = moment_of(one["began"])
        ended = moment_of(one["ended"])
        if began is None or began > axis.ended or (ended or now) < axis.began:
            continue
        kind = "running" if ended is None else _end_of(one, document)
        found.append((Bar(axis.place(began, ended or now), kind), one))
    return found[-50:]


def _end_of(execution: dict[str, Any], document: dict[str, Any]) -> str:
    deaths = {abs(row["fence"]) for row in document["rows"] if row["kind"] == "death"}
    if execution["fence"] in deaths:
        return "bad"
    return {"failed": "bad", "dead": "bad"}.get(execution["status"], "execution")
