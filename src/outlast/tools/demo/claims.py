"""Check the demo's claims against the facts, and list each claim with its evidence."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from rich.text import Text

from outlast.codec.text import safe
from outlast.tools.demo.facts import Facts
from outlast.tools.demo.topics import (
    ANSWER_TOKENS,
    KILL_AFTER,
    KILLED,
    STOPPED,
    TOOL_CALL,
    TOPICS,
    WAITING,
)
from outlast.tools.demo.view import WIDTH, line
from outlast.tools.demo.workspace import address_of

NOTE = (
    "The model and the outbox are fakes. They held the tool call and the answer until the signal "
    "was sent, so that it arrived in the middle. The fake model can continue an answer after a "
    "given token. A model that cannot do so would write the whole answer again. The workers had "
    "default settings, except for the number of slots."
)


class Claim(NamedTuple):
    claim: str
    evidence: str
    problems: list[str]
    """Why the claim does not hold. Empty if it holds."""


def check(facts: Facts) -> list[Claim]:
    checks = (_finished, _stopped, _killed, _repeated, _sent, _waited, _signalled)
    return [check(facts) for check in checks]


def summary(claims: Sequence[Claim], file: Path) -> list[Text]:
    """Return the list of claims, and a command to inspect a run."""
    failed = sum(bool(claim.problems) for claim in claims)
    verdict = f"{failed} of them failed" if failed else "all of them hold"
    lines = [line((f"The demo checked {len(claims)} claims: {verdict}.", "title"))]
    for claim in claims:
        mark, style = ("FAILED", "bad") if claim.problems else ("ok", "good")
        text = f"{claim.claim}: {'; '.join(claim.problems) or claim.evidence}"
        for number, part in enumerate(wrap(safe(text), WIDTH - 8)):
            lines.append(line((f"{'' if number else mark:>6}  ", style), (part, "plain")))
    lines.append(line())
    lines += [line((text, "quiet")) for text in wrap(NOTE, WIDTH)]
    lines += [line(), line(("Look closer  ", "title"), (inspect_command(file), "plain"))]
    return lines


def document(facts: Facts, claims: Sequence[Claim], file: Path) -> dict[str, Any]:
    """Return the claims and the facts for `--json`."""
    traffic = facts.traffic
    return {
        "passed": not any(claim.problems for claim in claims),
        "claims": [claim._asdict() for claim in claims],
        "seconds": round(facts.seconds, 3),
        "runs": {id: run.document() for id, run in facts.runs.items()},
        "repeated": [
            {"request": path, "run": topic, "count": count}
            for (path, topic, _), count in traffic.repeated.items()
        ],
        "answer": {"tokens": ANSWER_TOKENS, "arrived": traffic.arrived, "kept": traffic.kept},
        "messages": [message._asdict() for message in traffic.messages],
        "tokens": {"used": traffic.tokens, "saved": facts.saved},
        "workers": facts.exit_codes,
        "events": [{"at": round(event.at, 3), "text": event.text} for event in facts.events],
        "store": address_of(file),
        "inspect": inspect_command(file),
    }


def inspect_command(file: Path) -> str:
    """Return a command that shows the run whose worker was killed, ready to paste."""
    return shlex.join([_outlast(), "show", KILLED, "--store", address_of(file)])


def _outlast() -> str:
    """Return how to call `outlast` from the current folder."""
    beside = Path(sys.executable).with_name("outlast")
    if shutil.which("outlast") is not None or not beside.exists():
        return "outlast"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


# -- the claims


def _finished(facts: Facts) -> Claim:
    problems = []
    for topic in TOPICS:
        run = facts.runs.get(topic)
        if run is None or run.row.status != "done":
            problems.append(f"{topic} is {run.row.status if run else 'missing'}")
        elif json.loads(run.row.value or "null") != TOPICS[topic].answer:
            problems.append(f"{topic} has another answer than the model gave")
    evidence = f"{len(facts.runs)} runs, {facts.steps} recorded steps"
    return Claim("Every run finished with its whole answer", evidence, problems)


def _stopped(facts: Facts) -> Claim:
    problems = []
    run = facts.runs.get(STOPPED)
    entries = run.entries if run is not None else ()
    call = next((one for one in entries if (one.kind, one.key) == ("step", TOOL_CALL)), None)
    drain = facts.drain
    if run is None or (run.row.interruptions, run.row.deaths) != (1, 0):
        problems.append(f"{STOPPED} was not interrupted exactly once")
    if (
        call is None
        or call.seconds is None
        or not call.at - call.seconds < facts.sigterm_at < call.at
    ):
        problems.append("the tool call was not in flight when the signal came")
    if facts.exit_codes.get("A") != 0:
        problems.append(f"A exited with {facts.exit_codes.get('A')}")
    if drain is None or drain.cut_short or drain.left or drain.released != 1:
        problems.append("the drain report of A does not show one released run and none left")
    evidence = f"A recorded {TOOL_CALL} and released {STOPPED}"
    return Claim("SIGTERM lost nothing", evidence, problems)


def _killed(facts: Facts) -> Claim:
    problems = []
    run = facts.runs.get(KILLED)
    arrived, kept = facts.traffic.arrived, facts.traffic.kept
    if run is None or (run.row.deaths, run.row.interruptions) != (1, 0):
        problems.append(f"{KILLED} did not lose its worker exactly once")
    if arrived != KILL_AFTER:
        problems.append(f"the kill came after token {arrived} of {ANSWER_TOKENS}, not {KILL_AFTER}")
    if not 0 < kept <= arrived:
        problems.append(f"{kept} of the {arrived} tokens that had arrived were kept")
    evidence = f"C continued after token {kept} of {arrived}"
    return Claim("SIGKILL lost only unsaved tokens", evidence, problems)


def _repeated(facts: Facts) -> Claim:
    problems = [
        f"{path} {what} of {topic} was requested {times} times"
        for (path, topic, what), times in facts.traffic.repeated.items()
        if (path, topic, times) != ("answer", KILLED, 2)
    ]
    evidence = f"{facts.steps - 1} steps ran once, and {facts.saved} tokens were saved"
    return Claim("No other step ran twice", evidence, problems)


def _sent(facts: Facts) -> Claim:
    messages = facts.traffic.messages
    sent = Counter((message.to, message.text) for message in messages)
    wanted = Counter([("editor", f"May I spend tokens on {WAITING}?")])
    for topic, (_, answer) in TOPICS.items():
        wanted.update([("reader", f"I am looking into {topic}."), ("reader", answer)])
    problems = [f"the {to} also got {text[:40]!r}" for to, text in sent - wanted]
    problems += [f"the {to} did not get {text[:40]!r}" for to, text in wanted - sent]
    keys = [key for run in facts.runs.values() for key in run.keys]
    if sorted(message.key for message in messages) != sorted(keys):
        problems.append(
            f"the outbox has {len(messages)} messages, but the journals have {len(keys)}"
        )
    evidence = f"{len(messages)} messages, as in the journals"
    return Claim("Every message was sent exactly once", evidence, problems)


def _waited(facts: Facts) -> Claim:
    entries = facts.runs[WAITING].entries if WAITING in facts.runs else ()
    waits = [
        after.at - before.at
        for before, after in pairwise(entries)
        if after.kind == "message" and abs(after.fence) > abs(before.fence)
    ]
    problems = [] if waits else [f"a worker held {WAITING} while it waited for its editor"]
    evidence = f"{WAITING} waited {sum(waits):.0f} s for its editor"
    return Claim("A waiting run needs no worker", evidence, problems)


def _signalled(facts: Facts) -> Claim:
    codes = ", ".join(f"{name} {code}" for name, code in facts.exit_codes.items())
    return Claim("No worker exited without a signal", f"exit codes {codes}", facts.surprises)
