"""Render the report as one HTML page with no external resources and a dark mode.

Every inserted value is escaped.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

WIDTH = 1000
LEFT = 70
RIGHT = 16
LANE = 22
TOP = 30
BARS = 30
BARS_HEIGHT = 160
LETTERS = {"term": "T", "kill": "K", "stop": "S", "rolling": "R", "fleet": "F", "server": "D"}
"""Marks on the timeline."""

STYLE = (files(__package__) / "html_report.css").read_text(encoding="utf-8")


def page(report: dict[str, Any]) -> str:
    """Render a document made by `report.document`."""
    verdict = report["verdict"]
    words = {"ok": "Passed", "violated": "Violated", "not known": "Partly unknown"}[
        report["outcome"]
    ]
    if report["passed"] and report["outcome"] == "not known":
        words = "Nothing violated; partly unknown"
    parts = [
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            'content="width=device-width">'
        ),
        (
            f"<title>outlast chaos, seed {_e(report['seed'])}: "
            f"{_e(words)}</title><style>{STYLE}</style></head><body>"
        ),
        f'<h1>outlast chaos: <span class="{_class(report["outcome"])}">{_e(words)}</span></h1>',
        (
            f'<p class="soft">{_e(report["began"])} · seed {_e(report["seed"])} · '
            f"{_e(report['store'])} · Outlast {_e(report['outlast'])}</p>"
        ),
        _numbers(report),
        "<h2>Workers and faults</h2>",
        _timeline(report),
        "<h2>Seconds until a run continued</h2>",
        _histogram(report["recovery"]["seconds"], report["options"]["objective"]),
        _by_fault(report["recovery"]["by_fault"]),
        "<h2>Checks</h2>",
        _checks(verdict["checks"]),
        f"<h2>Checked</h2><p>{_facts(verdict['looked_at'])}</p>",
        f"<h2>Repeat</h2><p>The same plan of faults: <code>{_e(command(report))}</code></p>",
        "</body></html>",
    ]
    return "\n".join(parts)


def command(report: dict[str, Any]) -> str:
    """Return the command line for the same experiment.

    It repeats only the plan of faults exactly.
    """
    options = report["options"]
    names = ("seconds", "workers", "concurrency", "rate", "grace", "lease", "settle", "objective")
    words = [
        "outlast chaos",
        *map(shlex.quote, options["modules"][: 0 if options["demo"] else None]),
        *(
            f"--submit {shlex.quote(name)} --args {shlex.quote(text)}"
            for name, text in options["submit"]
        ),
        f"--seed {report['seed']}",
    ]
    words += [f"--{name} {options[name]:g}" for name in names]
    words += [
        f"--kills-per-minute {options['per_minute']:g}",
        f"--faults {','.join(options['kinds'])}",
    ]
    if options["server"]:
        words.append(f"--server {options['server']}")
    return " ".join(words)


def _numbers(report: dict[str, Any]) -> str:
    faults = report["faults"]
    work = report["work"]
    recovery = _fact(report, "recovery")
    redone = _fact(report, "redone")
    visible = {
        "faults": faults["injected"],
        "processes hit": sum(faults["processes"].values()),
        "workers started": report["workers"]["started"],
        "runs and items": work["acknowledged"],
        "lives lost": report["verdict"]["looked_at"]["deaths"]
        + report["verdict"]["looked_at"]["interruptions"],
        "recovery p50 / p95 / max": " / ".join(
            _seconds(recovery.get(name)) for name in ("p50", "p95", "max")
        ),
        "steps redone per fault": redone.get("per_fault", "not known"),
        "stale writers rejected": _refused(_fact(report, "no stale fence")),
    }
    return (
        "<dl>"
        + "".join(
            f"<div><dt>{_e(name)}</dt><dd>{_e(value)}</dd></div>" for name, value in visible.items()
        )
        + "</dl>"
    )


def _refused(facts: dict[str, Any]) -> str:
    outside, inside = (
        facts.get(name) for name in ("stale_writers_refused", "lives_refused_by_the_store")
    )
    return f"{inside or 0} inside, {'not known' if outside is None else outside} outside"


def _fact(report: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        check["facts"] for check in report["verdict"]["checks"] if check["name"] == name
    )
    return found


def _timeline(report: dict[str, Any]) -> str:
    lanes = report["workers"]["lanes"]
    end = max(report["seconds"], 0.001)
    height = TOP + lanes * LANE + LANE + 28

    def x(seconds: float) -> float:
        share: float = min(max(seconds, 0.0), end) / end
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    parts = [
        (
            f'<figure><svg viewBox="0 0 {WIDTH} {height}" role="img" '
            'aria-label="timeline of workers and faults">'
        )
    ]
    for lane in range(lanes):
        y = TOP + lane * LANE
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">worker {lane + 1}</text>'
        )
        parts.append(
            f'<line x1="{LEFT}" y1="{y + 9}" x2="{WIDTH - RIGHT}" y2="{y + 9}" style="stroke: '
            'var(--line)"/>'
        )
    for lane, state, begin, until in report["workers"]["spans"]:
        y = TOP + (lane - 1) * LANE
        left = x(begin)
        wide = max(0.8, x(until) - left)
        parts.append(
            f'<rect x="{left:.1f}" y="{y + 2}" width="{wide:.1f}" height="14" rx="2" style="fill: '
            f'var(--{_e(state)})"><title>{_e(state)} {begin:.1f} to {until:.1f} s</title></rect>'
        )
    parts += [_fault(fault, x, lanes) for fault in report["faults"]["list"]]
    step = _round_step(end / 8)
    foot = TOP + lanes * LANE + LANE
    for number in range(int(end / step) + 1):
        at = x(number * step)
        parts.append(
            f'<text x="{at:.1f}" y="{foot + 18}" text-anchor="middle">{number * step:g} s</text>'
        )
    storm = x(report["options"]["seconds"])
    parts.append(
        f'<line x1="{storm:.1f}" y1="12" x2="{storm:.1f}" y2="{foot}" style="stroke: var(--soft)" '
        'stroke-dasharray="4 4"/>'
    )
    parts.append(
        f'<text x="{storm - 4:.1f}" y="12" text-anchor="end">no faults after this</text></svg>'
    )
    keys = "".join(
        f'<span class="key" style="background: var(--{state})"></span>{state}'
        for state in ("starting", "alive", "draining", "stopped")
    )
    letters = ", ".join(f"{letter} {kind}" for kind, letter in LETTERS.items() if kind != "server")
    parts.append(
        f"<figcaption>{keys}. Faults: {letters}, D the store's server.</figcaption></figure>"
    )
    return "\n".join(parts)


def _fault(fault: dict[str, Any], x: Any, lanes: int) -> str:
    at = x(fault["at"])
    letter = LETTERS.get(fault["kind"], "?")
    text = f"<title>{fault['at']:.1f} s {_e(fault['kind'])}: {_e(fault['description'])}</title>"
    if fault["kind"] in ("server", "fleet", "rolling"):
        foot = TOP + lanes * LANE
        return (
            f'<g>{text}<line x1="{at:.1f}" y1="{TOP - 4}" x2="{at:.1f}" y2="{foot}" style="stroke: '
            'var(--kill)" stroke-dasharray="2 3"/>'
            f'<text class="ink" x="{at:.1f}" y="{foot + 13}" '
            f'text-anchor="middle">{_e(letter)}</text></g>'
        )
    marks = []
    for lane in fault["lanes"]:
        y = TOP + (lane - 1) * LANE + 9
        marks.append(
            f'<circle cx="{at:.1f}" cy="{y}" r="6" style="fill: var(--kill)"/><text x="{at:.1f}" '
            f'y="{y + 3.5}" text-anchor="middle" style="fill: #fff; font-size: '
            f'9px">{_e(letter)}</text>'
        )
    return f"<g>{text}{''.join(marks)}</g>"


def _histogram(seconds: Sequence[float], objective: float) -> str:
    if not seconds:
        return '<p class="soft">No run lost its worker, or no log says when it continued.</p>'
    top = max(seconds)
    step = _round_step(max(top, 0.1) / BARS)
    counts = [0] * (int(top / step) + 1)
    for one in seconds:
        counts[int(one / step)] += 1
    height = BARS_HEIGHT + 50
    inner = WIDTH - LEFT - RIGHT
    wide = inner / len(counts)
    parts = [
        (
            f'<figure><svg viewBox="0 0 {WIDTH} {height}" role="img" '
            'aria-label="histogram of recovery times">'
        )
    ]
    for number in range(3):
        value = max(counts) * number / 2
        y = 12 + BARS_HEIGHT * (1 - number / 2)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" style="stroke: '
            'var(--line)"/>'
        )
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for number, count in enumerate(counts):
        tall = BARS_HEIGHT * count / max(counts)
        left = LEFT + number * wide
        parts.append(
            f'<rect x="{left + 0.5:.1f}" y="{12 + BARS_HEIGHT - tall:.1f}" '
            f'width="{max(0.8, wide - 1):.1f}" height="{tall:.1f}" style="fill: var(--bar)">'
            f"<title>{number * step:g} to {(number + 1) * step:g} s: {count}</title></rect>"
        )
    marks = _round_step(len(counts) * step / 8)
    for number in range(int(len(counts) * step / marks) + 1):
        at = LEFT + inner * number * marks / (len(counts) * step)
        parts.append(
            f'<text x="{at:.1f}" y="{BARS_HEIGHT + 30}" text-anchor="middle">{number * marks:g} '
            "s</text>"
        )
    parts.append(
        f"</svg><figcaption>{len(seconds)} runs, from the fault on their worker, or from its "
        f"release of the run, until another worker claimed them. The objective is {objective:g} "
        "s.</figcaption></figure>"
    )
    return "\n".join(parts)


def _by_fault(by_fault: dict[str, dict[str, Any]]) -> str:
    if not by_fault:
        return ""
    rows = "".join(
        f"<tr><td>{_e(kind)}</td><td>{_e(one['count'])}</td>"
        + "".join(f"<td>{_seconds(one.get(name))}</td>" for name in ("p50", "p95", "max"))
        + "</tr>"
        for kind, one in by_fault.items()
    )
    head = "".join(f"<th>{name}</th>" for name in ("fault", "runs", "p50", "p95", "max"))
    return f"<table><tr>{head}</tr>{rows}</table>"


def _checks(checks: Sequence[dict[str, Any]]) -> str:
    rows = []
    for check in checks:
        more = ""
        if check["evidence"]:
            left = check["violations"] - len(check["evidence"])
            text = "\n".join(check["evidence"]) + (f"\n… and {left} more" if left else "")
            more += f"<pre>{_e(text)}</pre>"
        more += "".join(
            f'<p class="unknown">Not known: {_e(text)}.</p>' for text in check["not_known"]
        )
        facts = f'<br><span class="soft">{_facts(check["facts"])}</span>' if check["facts"] else ""
        rows.append(
            f'<tr><td class="name">{_e(check["name"])}</td><td class="name '
            f'{_class(check["outcome"])}">{_e(check["outcome"])}</td>'
            f"<td>{_e(check['asks'])}.{facts}{more}</td><td>{_e(check['looked_at'])}</td></tr>"
        )
    return (
        "<table><tr><th>check</th><th></th><th>what must be so</th><th>looked "
        f"at</th></tr>{''.join(rows)}</table>"
    )


def _facts(facts: dict[str, Any]) -> str:
    visible = []
    for name, value in facts.items():
        text = (
            ", ".join(f"{inner} {one}" for inner, one in value.items())
            if isinstance(value, dict)
            else value
        )
        visible.append(f"{_e(name.replace('_', ' '))}: {_e(text)}")
    return " · ".join(visible)


def _seconds(value: Any) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _class(outcome: str) -> str:
    return "unknown" if outcome == "not known" else _e(outcome)


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2 or 5 times a power of ten that is not below `least`."""
    scale = 10.0 ** math.floor(math.log10(least))
    return next(part * scale for part in (1, 2, 5, 10) if part * scale >= least * 0.999)


def _e(value: Any) -> str:
    return escape(str(value))
