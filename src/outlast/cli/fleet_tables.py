"""Print `outlast workers` and `outlast queues` for people."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.text import Text

from outlast.cli.grid import Cell, Column, table, unreadable
from outlast.cli.hints import resume_queue
from outlast.cli.text import safe, span
from outlast.store.fleet import Fleet, Stall, names_of
from outlast.store.rows import QueueRow, WorkerRow
from outlast.store.tolerant_rows import each_displayed

STATES = {"alive": "green", "draining": "yellow", "dead": "red"}
BAD = "red"
ENDED_STALLS_MAX = 5
"""How many stalls of ended workers are shown, latest first."""

WORKERS = (
    Column("WORKER"),
    Column("STATE"),
    Column("HOST", least=12),
    Column("PID", right=True, wide=True),
    Column("SINCE", right=True, wide=True),
    Column("RENEWED", right=True, wide=True),
    Column("LEASE LEFT", right=True),
    Column("SLOTS", right=True),
    Column("WORKFLOWS", right=True, wide=True),
    Column("QUEUES", least=10),
)
QUEUES = (
    Column("QUEUE"),
    Column("READY", right=True),
    Column("DELAYED", right=True),
    Column("RUNNING", right=True),
    Column("WAITING", right=True),
    Column("PARKED", right=True),
    Column("DEAD", right=True),
    Column("OLDEST", right=True),
    Column("IN/MIN", right=True, wide=True),
    Column("OUT/MIN", right=True, wide=True),
    Column("DEPTH MAX", right=True, wide=True),
    Column("CONCURRENCY MAX", right=True, wide=True),
)


def worker_lines(fleet: Fleet, *, wide: bool) -> list[Text]:
    cells = each_displayed(
        fleet.workers,
        lambda row: _worker(row, fleet.state(row), fleet.now),
        lambda row, why: unreadable(WORKERS, str(row.id), why),
    )
    lines = table(WORKERS, cells, wide=wide)
    lines += [
        Text(
            f"worker {safe(id)} was deregistered and still has runs: the next sweep releases them.",
            BAD,
        )
        for id in fleet.deregistered
    ]
    return [*lines, *_stall_lines(fleet)]


def _stall_lines(fleet: Fleet) -> list[Text]:
    """Return a line per step that blocked a worker, with only the latest of ended workers."""
    here = {worker.id for worker in fleet.workers}
    ended = [one for one in fleet.stalls if one.worker not in here]
    lines = [_stall(one, fleet.now, "") for one in fleet.stalls if one.worker in here]
    lines += [_stall(one, fleet.now, ", which has ended") for one in ended[:ENDED_STALLS_MAX]]
    if len(ended) > ENDED_STALLS_MAX:
        lines.append(
            Text(f"{len(ended) - ENDED_STALLS_MAX} older ones of ended workers: see --json.")
        )
    return [Text("no process has this store open."), *lines] if lines and not here else lines


def _stall(one: Stall, now: float, ended: str) -> Text:
    return Text(
        f"worker {safe(one.worker)}{ended}: `{safe(one.step)}` blocked the event loop "
        f"{_times(one.times)} {one.seconds:.1f} s, {span(max(0.0, now - one.at))} ago, at "
        f"{safe(one.line)}. Write the step as `def` instead of `async def`, and call it with "
        "`await NAME.aio(...)`.",
        BAD,
    )


def _times(count: int) -> str:
    return "once, for" if count == 1 else f"{count:,} times, the last time for"


def _worker(row: WorkerRow, state: str, now: float) -> list[Cell]:
    left = row.lease_until - now
    queues = names_of(row.queues)
    return [
        Cell(safe(row.id)),
        Cell(f"{'seems ' if state == 'dead' else ''}{state}", STATES[state]),
        Cell(safe(row.host)),
        Cell(str(row.pid)),
        Cell(span(max(0.0, now - row.started))),
        Cell(f"{span(max(0.0, now - row.renewed))} ago"),
        Cell(span(left)) if left > 0 else Cell("ran out", BAD),
        Cell(f"{row.held}/{row.concurrency}" if queues else f"{row.held}/-"),
        Cell(str(len(names_of(row.workflows))) if queues else "-"),
        Cell(", ".join(map(safe, queues)) or "- (claims nothing)"),
    ]


def queue_lines(
    rows: Sequence[QueueRow],
    unknown: Mapping[str, Sequence[str]],
    unclaimed: Collection[str],
    now: float,
    *,
    store: str | None,
    wide: bool,
) -> list[Text]:
    cells = each_displayed(
        rows, lambda row: _queue(row, now), lambda row, why: unreadable(QUEUES, str(row.name), why)
    )
    lines = table(QUEUES, cells, wide=wide)
    lines += [
        line
        for apart in each_displayed(rows, lambda row: _apart(row, now, store), lambda *_: [])
        for line in apart
    ]
    for queue, names in unknown.items():
        lines += [
            Text(f"{safe(queue)}: {text}", BAD) for text in _waiting(names, queue in unclaimed)
        ]
    return lines


def _waiting(workflows: Sequence[str], unclaimed: bool) -> list[str]:
    """Say why runs of these workflows wait."""
    if unclaimed:
        names = ", ".join(map(safe, workflows))
        return [f"runs of {names} are ready, and no live worker claims from this queue."]
    return [
        f"runs of {safe(name)} are ready, and no live worker of this queue knows the workflow."
        for name in workflows
    ]


def _apart(row: QueueRow, now: float, store: str | None) -> list[Text]:
    """Return lines for counts that are usually 0 and so have no column."""
    lines = []
    if (resume := resume_queue(row, store)) is not None:
        lines.append(Text(f"{safe(row.name)}: paused. To resume: {resume}.", "yellow"))
    elif row.concurrency_max is not None and row.ready and row.running >= row.concurrency_max:
        lines.append(
            Text(
                f"{safe(row.name)}: {row.ready:,} held back by its concurrency limit of "
                f"{row.concurrency_max:,}.",
                "yellow",
            )
        )
    rate = row.key_rate
    per_key = [] if row.key_concurrency_max is None else [f"{row.key_concurrency_max:,} executing"]
    per_key += [] if rate is None else [f"{rate} starting"]
    if per_key:
        lines.append(Text(f"{safe(row.name)}: of each key at most {' and '.join(per_key)}."))
    if row.returned:
        since = (
            ""
            if row.returned_since is None
            else f"; the longest wait is {span(max(0.0, now - row.returned_since))}"
        )
        lines.append(
            Text(
                f"{safe(row.name)}: {row.returned} queued again after an interruption or a "
                f"death{since}.",
                "yellow",
            )
        )
    if row.undoing:
        lines.append(Text(f"{safe(row.name)}: {row.undoing} being compensated.", "yellow"))
    if row.stuck:
        lines.append(Text(f"{safe(row.name)}: {row.stuck} parked during compensation.", BAD))
    return lines


def _queue(row: QueueRow, now: float) -> list[Cell]:
    full = row.depth_max is not None and row.queued >= row.depth_max
    return [
        Cell(safe(row.name)),
        Cell(str(row.ready), BAD if full else ""),
        Cell(str(row.delayed), BAD if full and row.delayed else ""),
        Cell(str(row.running), "cyan" if row.running else ""),
        Cell(str(row.waiting), "blue" if row.waiting else ""),
        Cell(str(row.parked), "yellow" if row.parked else ""),
        Cell(str(row.dead), BAD if row.dead else ""),
        Cell("-" if row.oldest is None else span(max(0.0, now - row.oldest))),
        Cell(str(row.submitted)),
        Cell(str(row.ended)),
        Cell("-" if row.depth_max is None else str(row.depth_max)),
        Cell("-" if row.concurrency_max is None else str(row.concurrency_max)),
    ]
