"""Check the demo's claims. A claim that does not hold is reported and changes the exit code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from outlast.shutdown.report import DrainReport
from outlast.tools.demo.facts import Facts
from outlast.tools.demo.library import ASKS, CUT, STOPPED, TOPICS
from outlast.tools.demo.model import length_of, middle_of


class Check(NamedTuple):
    claim: str
    wrong: tuple[str, ...]
    """Evidence against the claim."""


def checks(facts: Facts) -> list[Check]:
    return [
        Check("every run is done, with the whole answer", tuple(_ended(facts))),
        Check(
            "SIGTERM fell in the middle of a tool call, which ended and was recorded",
            tuple(_stopped(facts)),
        ),
        Check(
            "SIGKILL fell in the middle of an answer, which continued where it was",
            tuple(_cut(facts)),
        ),
        Check("only that answer was requested again", tuple(_again(facts))),
        Check("every message was sent once", tuple(_sent(facts))),
        Check("no worker exited by itself", tuple(facts.result.surprises)),
    ]


def _ended(facts: Facts) -> Iterator[str]:
    for topic in TOPICS:
        run = facts.runs.get(topic)
        if run is None or run.row.status != "done":
            yield f"{topic} is {run.row.status if run else 'not there'}"
        elif run.value != TOPICS[topic].answer:
            yield f"{topic} does not have the answer that the model gave"


def _stopped(facts: Facts) -> Iterator[str]:
    call = facts.tool_call
    drain = facts.drains.get("A")
    run = facts.runs.get(STOPPED)
    if run is None or (run.row.interruptions, run.row.deaths) != (1, 0):
        yield f"{STOPPED} was not interrupted once"
    term = facts.result.signals.term
    if call is None or call.seconds is None or not call.at - call.seconds < term < call.at:
        yield "the tool call was not in progress when the signal came"
    if facts.result.signals.exit_codes.get("A") != 0:
        yield f"A exited with {facts.result.signals.exit_codes.get('A')}"
    report = DrainReport.of(drain) if drain is not None else None
    if report is None or report.cut_short or report.left or report.released != 1:
        yield "the drain report of A does not say that it released one run and left none"


def _cut(facts: Facts) -> Iterator[str]:
    run = facts.runs.get(CUT)
    if run is None or (run.row.deaths, run.row.interruptions) != (1, 0):
        yield f"{CUT} did not die once"
    if facts.arrived != middle_of(CUT):
        yield (
            f"the answer was not cut in its middle, but at token {facts.arrived} of "
            f"{length_of(CUT)}"
        )
    if not facts.one_answer:
        yield "the answer was generated again from the start"
    if not 0 < facts.kept <= facts.arrived:
        yield f"of {facts.arrived} tokens that had arrived {facts.kept} were kept"


def _again(facts: Facts) -> Iterator[str]:
    for call, times in facts.repeated.items():
        if (call.path, call.topic, times) != ("answer", CUT, 2):
            yield f"{call.path} of {call.topic} {call.what} was asked for {times} times"


def _sent(facts: Facts) -> Iterator[str]:
    for (to, text), times in facts.duplicates.items():
        yield f"{times} times to the {to}: {text[:40]}"
    keys = [message.key for message in facts.messages]
    meant = [
        effect.key
        for run in facts.runs.values()
        for effect in run.effects
        if effect.state == "happened"
    ]
    if sorted(keys) != sorted(meant):
        yield (
            f"the outbox has {len(keys)} messages, and the journals {len(meant)} that happened: "
            "not the same keys"
        )
    for topic in TOPICS:
        wanted = {("reader", f"I look into {topic}."), ("reader", TOPICS[topic].answer)}
        if topic == ASKS:
            wanted.add(("editor", f"May I spend tokens on {topic}?"))
        missing = wanted - {(message.to, message.text) for message in facts.messages}
        if missing:
            yield f"of {topic} {len(missing)} messages were not sent"
