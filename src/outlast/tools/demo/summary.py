"""Summarize the demo for people and for programs.

The summary says what happened, what was redone, sent and saved, and where to look closer.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple
from urllib.parse import quote

from outlast.codec.text import safe
from outlast.store.rows import Entry
from outlast.tools.demo.facts import Facts, RunFacts
from outlast.tools.demo.library import CUT
from outlast.tools.demo.model import length_of
from outlast.tools.demo.verdict import Check
from outlast.tools.demo.view import WIDTH, Line, Part

LABEL = 11
"""Columns of the label before each part."""
GATES = (
    "The stand-in for a model held the tool call and the answer until the signal was sent, so "
    "that each signal fell in the middle. It continues a stream after the id of an event. A model "
    "that cannot do so generates the whole answer again. The workers have default settings, except "
    "for the number of slots."
)


def summary(facts: Facts, checked: Sequence[Check], file: Path) -> list[Line]:
    lines: list[Line] = [(Part("What happened, by the store and the two servers", "title"),)]
    lines += list(_timeline(facts))
    lines.append(())
    lines += _part("Redone", _redone(facts))
    lines += _part("Sent", _sent(facts))
    lines += _part("Saved", _saved(facts))
    wrong = [f"{check.claim}: {'; '.join(check.wrong)}" for check in checked if check.wrong]
    for text in wrong:
        lines += _part("NOT SO", safe(text), "bad")
    if not wrong:
        lines += _part(
            "Checked", f"all {len(checked)} claims hold, and outlast demo exits with 0", "good"
        )
    lines += _part("Note", GATES, "dim")
    lines += [(), (Part("Look closer".ljust(LABEL + 2), "title"), Part(look_closer(file)))]
    return lines


def look_closer(file: Path) -> str:
    """Return a command to inspect the run, ready to paste."""
    return shlex.join([outlast(), "show", CUT, "--store", address(file)])


def address(file: Path) -> str:
    """Return the store's address, relative to the current folder."""
    return f"sqlite:///{quote(str(file))}"


def outlast() -> str:
    """Return how to call `outlast` from the current folder."""
    if shutil.which("outlast") is not None:
        return "outlast"
    beside = Path(sys.executable).with_name("outlast")
    try:
        return str(beside.relative_to(Path.cwd())) if beside.exists() else "outlast"
    except ValueError:
        return str(beside)


class Moment(NamedTuple):
    """A line of the timeline."""

    at: float
    id: str
    text: str
    mood: str


def _timeline(facts: Facts) -> Iterator[Line]:
    moments = [moment for run in facts.runs.values() for moment in _moments(facts, run)]
    for at, id, text, mood in sorted(moments, key=lambda moment: moment.at):
        clock = Part(f"{at - facts.result.began:6.1f} s  ", "dim")
        yield clock, Part(f"{id:<9} "), Part(text, mood)


def _moments(facts: Facts, run: RunFacts) -> Iterator[Moment]:
    """Yield when a run began, lost its worker, continued and ended."""
    row = run.row
    signals = facts.result.signals
    if row.started is not None and run.entries:
        worker = _worker(facts, row.id, run.entries[0])
        yield Moment(row.started, row.id, f"begins on {worker}", "plain")
    for entry, after in pairwise(run.entries):
        lost = _worker(facts, row.id, entry)
        continues = f"continues on {_worker(facts, row.id, after)}"
        resumed = after.at - (after.seconds or 0.0)
        if entry.kind == "interruption":
            call = facts.tool_call.key if facts.tool_call is not None else "a step"
            yield Moment(signals.term, row.id, f"{lost} gets SIGTERM during {call}", "warn")
            yield Moment(entry.at, row.id, f"{lost} has recorded {call}, releases the run", "warn")
            yield Moment(resumed, row.id, f"{continues}, with {after.key}", "good")
        elif entry.kind == "death":
            yield Moment(signals.kill, row.id, f"{lost} gets SIGKILL during {after.key}", "bad")
            yield Moment(resumed, row.id, f"{continues}, in the middle of {after.key}", "good")
        elif after.kind == "message":
            yield Moment(entry.at, row.id, "waits for its editor; no worker holds it", "dim")
            yield Moment(after.at, row.id, f"{continues}: approved", "good")
    if row.ended is not None:
        mood = "good" if row.status == "done" else "bad"
        yield Moment(row.ended, row.id, row.status, mood)


def _worker(facts: Facts, id: str, entry: Entry) -> str:
    """Return the worker that held the run when the entry was written, or that it had lost by then.

    An execution that fell between two polls is one of an unknown worker.
    """
    return facts.result.executions.get((id, abs(entry.fence)), "a worker")


def _redone(facts: Facts) -> str:
    again = len(facts.repeated)
    if again == 0:
        return f"none of {facts.steps} steps"
    lost = facts.arrived - facts.kept
    what = f"part of 1 of {facts.steps} steps" if again == 1 else f"{again} of {facts.steps} steps"
    return f"{what}: {lost} of {length_of(CUT)} tokens of an answer arrived twice"


def _sent(facts: Facts) -> str:
    twice = len(facts.duplicates)
    return f"{len(facts.messages)} messages" + (
        ", each once" if not twice else f", {twice} of them more than once"
    )


def _saved(facts: Facts) -> str:
    return (
        f"the journal saved {facts.saved} tokens of finished steps, and the stream's progress "
        f"saved {facts.kept} of the {facts.arrived} tokens that had arrived of the answer"
    )


def _part(label: str, text: str, mood: str = "plain") -> list[Line]:
    labels = [f"{label:<{LABEL}}  "]
    return [
        (Part(before, "title"), Part(line, mood))
        for before, line in zip_longest(
            labels, wrap(text, WIDTH - LABEL - 2), fillvalue=" " * (LABEL + 2)
        )
    ]


def document(facts: Facts, checked: Sequence[Check], file: Path) -> dict[str, Any]:
    """Return the summary for programs."""
    return {
        "passed": not any(check.wrong for check in checked),
        "checks": [{"claim": check.claim, "wrong": list(check.wrong)} for check in checked],
        "seconds": round(facts.result.seconds, 3),
        "runs": {
            id: {
                "status": run.row.status,
                "deaths": run.row.deaths,
                "interruptions": run.row.interruptions,
                "steps": run.steps,
                "tokens_saved": run.saved,
            }
            for id, run in facts.runs.items()
        },
        "redone": [
            {"request": call.path, "run": call.topic, "begun": times}
            for call, times in facts.repeated.items()
        ],
        "answer": {"tokens": length_of(CUT), "arrived": facts.arrived, "kept": facts.kept},
        "messages": [{"to": one.to, "text": one.text, "key": one.key} for one in facts.messages],
        "tokens": {"used": facts.result.model.used, "saved": facts.saved},
        "workers": facts.result.signals.exit_codes,
        "happenings": [{"at": round(one.at, 3), "text": one.text} for one in facts.result.events],
        "store": address(file),
        "look_closer": look_closer(file),
    }
