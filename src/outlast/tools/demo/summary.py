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
from typing import Any
from urllib.parse import quote

from outlast.codec.text import safe
from outlast.store.rows import Entry
from outlast.tools.demo.facts import Facts, RunFacts
from outlast.tools.demo.model import length_of
from outlast.tools.demo.scenario import CUT
from outlast.tools.demo.verdict import Check
from outlast.tools.demo.view import WIDTH, Line, Part

LABEL = 11
"""Columns of the label before each part."""
GATES = (
    "The stand-in held the tool call and the answer until the signal was sent, so that each fell "
    "in the middle. It goes on after the id of "
    "an event; a model that cannot is asked anew, and then the whole answer is redone. Default "
    "settings but for the number of slots."
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


def _timeline(facts: Facts) -> Iterator[Line]:
    moments = sorted(
        (moment for told in facts.runs.values() for moment in _moments(facts, told)),
        key=lambda one: one[0],
    )
    for at, id, text, mood in moments:
        clock = Part(f"{at - facts.played.began:6.1f} s  ", "dim")
        yield clock, Part(f"{id:<9} "), Part(text, mood)


def _moments(facts: Facts, told: RunFacts) -> Iterator[tuple[float, str, str, str]]:
    """Yield when a run began, lost its worker, continued and ended."""
    row = told.row
    if row.started is not None and told.entries:
        yield row.started, row.id, f"begins{_on(facts, row.id, told.entries[0])}", "plain"
    for entry, after in pairwise(told.entries):
        lost, on = _worker(facts, row.id, entry) or "its worker", _on(facts, row.id, after, ", on")
        if entry.kind == "interruption":
            under_way = facts.tool_call.key if facts.tool_call is not None else "a step"
            yield (
                facts.played.struck.term,
                row.id,
                f"{lost} is told to stop in the middle of {under_way}",
                "warn",
            )
            yield (
                entry.at,
                row.id,
                f"given back by {lost}: {under_way} has ended and is recorded",
                "warn",
            )
            yield (
                after.at - (after.seconds or 0.0),
                row.id,
                f"goes on{on}, with {after.key}",
                "good",
            )
        elif entry.kind == "death":
            yield (
                facts.played.struck.kill,
                row.id,
                f"{lost} is killed in the middle of {after.key}",
                "bad",
            )
            yield (
                after.at - (after.seconds or 0.0),
                row.id,
                f"goes on{on}, in the middle of {after.key}",
                "good",
            )
        elif after.kind == "message":
            yield entry.at, row.id, "waits for its editor; no worker holds it", "dim"
            yield after.at, row.id, f"goes on{on}: approved", "good"
    if row.ended is not None:
        yield row.ended, row.id, row.status, "good" if row.status == "done" else "bad"


def _worker(facts: Facts, id: str, entry: Entry) -> str | None:
    """Return the worker that held the run when the entry was written, or that it had lost by then.

    Return None for an execution that fell between two polls.
    """
    return facts.played.lives.get((id, abs(entry.fence)))


def _on(facts: Facts, id: str, entry: Entry, before: str = " on") -> str:
    worker = _worker(facts, id, entry)
    return f"{before} {worker}" if worker is not None else ""


def _redone(facts: Facts) -> str:
    again = len(facts.again)
    if again == 0:
        return f"nothing of {facts.steps} steps"
    lost = facts.arrived - facts.kept
    what = f"a part of 1 step of {facts.steps}" if again == 1 else f"{again} of {facts.steps} steps"
    return f"{what}: {lost} of {length_of(CUT)} tokens of an answer came twice"


def _sent(facts: Facts) -> str:
    twice = len(facts.twice)
    return f"{len(facts.messages)} messages" + (
        ", each once" if not twice else f", {twice} of them more than once"
    )


def _saved(facts: Facts) -> str:
    return (
        f"{facts.saved} tokens of finished steps, by the journal, and {facts.kept} of the "
        f"{facts.arrived} tokens that had arrived of the "
        "answer, by its progress, were not asked for again"
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
        "seconds": round(facts.played.seconds, 3),
        "runs": {
            id: {
                "status": told.row.status,
                "deaths": told.row.deaths,
                "interruptions": told.row.interruptions,
                "steps": told.steps,
                "tokens_saved": told.saved,
            }
            for id, told in facts.runs.items()
        },
        "redone": [
            {"request": call.path, "run": call.topic, "begun": times}
            for call, times in facts.again.items()
        ],
        "answer": {"tokens": length_of(CUT), "arrived": facts.arrived, "kept": facts.kept},
        "messages": [{"to": one.to, "text": one.text, "key": one.key} for one in facts.messages],
        "tokens": {"used": facts.played.model.used, "saved": facts.saved},
        "workers": facts.played.struck.codes,
        "happenings": [
            {"at": round(one.at, 3), "text": one.text} for one in facts.played.happenings
        ],
        "store": address(file),
        "look_closer": look_closer(file),
    }
