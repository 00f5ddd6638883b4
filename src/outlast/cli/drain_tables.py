"""Print `outlast drains` for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from rich.text import Text

from outlast.cli.drains import COUNTS, LABELS
from outlast.cli.grid import Cell, Column, table, unreadable
from outlast.cli.text import moment, one_line, safe, short, span
from outlast.codec.cost import Cost
from outlast.shutdown.report import DrainReport
from outlast.store.rows import DrainRow
from outlast.store.tolerant_rows import each_displayed

STATES = {"drained": "green", "draining": "yellow", "cut short": "red", "no report": "red"}
BAD = "red"
REASON_LENGTH = 40
COST_LENGTH = 40

DRAINS = (
    Column("BEGAN"),
    Column("WORKER"),
    Column("HOST", wide=True),
    Column("STATE"),
    Column("TOOK", right=True),
    Column("COMPLETED", right=True, wide=True),
    Column("RELEASED", right=True, wide=True),
    Column("WAITING", right=True, wide=True),
    Column("CHECKPOINTED", right=True, wide=True),
    Column("RETURNED", right=True, wide=True),
    Column("LEFT", right=True),
    Column("RECOVERED", right=True, wide=True),
    Column("P95", right=True, wide=True),
    Column("COST", wide=True),
    Column("REASON", least=8),
)


def drain_lines(
    drains: Sequence[DrainRow], state: Callable[[DrainRow], str], *, wide: bool
) -> list[Text]:
    cells = each_displayed(
        drains,
        lambda row: _drain(DrainReport.of(row), state(row), wide=wide),
        lambda row, why: unreadable(DRAINS, str(row.worker), why),
    )
    return table(DRAINS, cells, wide=wide)


def _drain(report: DrainReport, state: str, *, wide: bool) -> list[Cell]:
    recovered = report.recoveries
    reason = one_line(report.reason)
    if not wide:
        # Leave the room to the reason itself, not to who gave it.
        reason = reason.rpartition(" (by ")[0] or reason
    return [
        Cell(_began(report)),
        Cell(safe(report.worker)),
        Cell(safe(report.host) or "-"),
        Cell(state, STATES[state]),
        Cell("-" if report.seconds is None else span(report.seconds)),
        Cell(str(report.completed)),
        Cell(str(report.released)),
        Cell(str(report.waiting)),
        Cell(str(report.checkpointed)),
        Cell(str(report.not_started)),
        Cell(str(len(report.left)), BAD if report.left else ""),
        Cell(f"{recovered['count']:.0f}" if recovered else "-"),
        Cell(span(recovered["p95"]) if recovered else "-"),
        Cell(short(_cost(report), COST_LENGTH) or "-"),
        Cell(short(reason, REASON_LENGTH) or "-"),
    ]


def full_lines(report: DrainReport, state: str) -> list[Text]:
    """Return all that is known about one drain."""
    head = Text.assemble(
        ("worker ", "bold"), (safe(report.worker), "bold"), "  ", (state, STATES[state])
    )
    return [head, *(_row(name, text) for name, text in _facts(report)), *_details(report)]


def _facts(report: DrainReport) -> Iterator[tuple[str, str]]:
    yield "on", f"{safe(report.host) or '-'}, pid {report.pid}"
    yield "began", _began(report)
    yield "reason", one_line(report.reason) or "-"
    yield "took", "-" if report.seconds is None else span(report.seconds)
    if report.layers:
        yield (
            "layers done",
            ", ".join(f"{safe(str(name))} at {span(by)}" for name, by in report.layers.items()),
        )
    counts = {LABELS.get(name, name): getattr(report, name) for name in COUNTS}
    counts["left"] = len(report.left)
    counted = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    yield "runs", counted or "none were in flight"
    if any(report.units.values()):
        yield (
            "units",
            ", ".join(
                f"{count} {safe(str(name)).replace('_', ' ')}"
                for name, count in report.units.items()
            ),
        )
    if report.compensations:
        yield (
            "compensations",
            (
                f"{report.compensations} registered by runs that were released, waiting or "
                "checkpointed"
            ),
        )
    if cost := _cost(report):
        yield (
            "cost",
            f"{cost} recorded by runs that were released, waiting or checkpointed: not spent again",
        )
    recovered = report.recoveries
    if recovered:
        spread = ", ".join(f"{name} {span(recovered[name])}" for name in ("p50", "p95", "max"))
        yield "recovered", f"{recovered['count']:.0f}, after {spread}"


def _details(report: DrainReport) -> Iterator[Text]:
    for one in report.left:
        step = f" at {safe(one.step)}" if one.step else ""
        since = f", for {span(one.seconds)}" if one.seconds is not None else ""
        why = f": {one_line(one.why)}" if one.why else ""
        yield _row("left", f"{safe(one.what)} {safe(one.id)}{step}{since}{why}", BAD)
    for step in report.not_checkpointed:
        yield _row("did not stop", safe(str(step)), BAD)
    for what in report.blocked:
        yield _row("blocked", one_line(str(what)), BAD)
    for done in report.cleanup:
        how = (
            span(done.seconds)
            if done.error is None
            else f"{span(done.seconds)}, failed: {one_line(done.error)}"
        )
        yield _row("clean-up", f"{safe(done.name)}: {how}", "" if done.error is None else BAD)


def _cost(report: DrainReport) -> str:
    """Return the report's cost as text. What is not a valid amount counts as nothing."""
    cost = Cost.read(json.dumps(report.cost))
    return str(cost) if cost else ""


def _row(name: str, text: str, style: str = "") -> Text:
    return Text.assemble(f"  {name:<14}", (text, style))


def _began(report: DrainReport) -> str:
    return "-" if report.began is None else moment(report.began.timestamp())
