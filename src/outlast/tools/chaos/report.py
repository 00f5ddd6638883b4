"""Turn the outcome of an experiment into one JSON document, the only source of the HTML page."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import outlast
from outlast.settings.redaction import masked
from outlast.tools.chaos.experiment import Outcome
from outlast.tools.chaos.faults import DRAIN
from outlast.tools.chaos.verdict import percentiles

VERSION = 1
"""Version of the document's format."""


def document(outcome: Outcome) -> dict[str, Any]:
    """Build the document. `verdict.checks` has the evidence.

    Times are seconds since the first fault could fall, unless they are written as dates.
    """
    options = outcome.options
    fleet = outcome.fleet
    faults = outcome.faults
    load = outcome.load
    given = asdict(options) | {"store": masked(options.store) if options.store else None}
    return {
        "version": VERSION,
        "outlast": outlast.__version__,
        "seed": options.seed,
        "outcome": outcome.verdict.outcome,
        "passed": passed(outcome),
        "began": datetime.fromtimestamp(outcome.began, UTC).isoformat(timespec="milliseconds"),
        "seconds": round(outcome.seconds, 3),
        "settled_seconds": None if outcome.settled is None else round(outcome.settled, 3),
        "store": masked(outcome.place),
        "options": given,
        "work": {
            "submitted": load.rate.tried,
            "acknowledged": len(load.acknowledged),
            "held_back_seconds": round(load.rate.held_back, 1),
        },
        "faults": {
            "planned": outcome.planned,
            "injected": len(faults.injected),
            "missed": len(faults.missed),
            "outages": faults.outages,
            "by_kind": dict(sorted(Counter(fault.kind for fault in faults.injected).items())),
            "processes": dict(
                sorted(
                    Counter(
                        kind
                        for member in fleet.members
                        for _, kind in member.faults
                        if kind != DRAIN
                    ).items()
                )
            ),
            "list": [
                {
                    "at": round(fault.at, 3),
                    "kind": fault.kind,
                    "lanes": [lane + 1 for lane in fault.lanes],
                    "description": fault.description,
                }
                for fault in faults.injected
            ],
        },
        "workers": {
            "lanes": fleet.size,
            "started": len(fleet.members),
            "spans": [
                [span.lane + 1, span.state, round(max(0.0, span.begin), 3), round(span.end, 3)]
                for span in fleet.spans
                if span.end > 0 and span.state != "dead"
            ],
        },
        "recovery": {
            "by_fault": {
                kind: percentiles(values)
                for kind, values in sorted(outcome.claims.by_fault.items())
            },
            "seconds": sorted(
                round(one, 3) for values in outcome.claims.by_fault.values() for one in values
            ),
        },
        "verdict": outcome.verdict.document(),
    }


def passed(outcome: Outcome) -> bool:
    """Return whether the experiment passed.

    Chaos's own workload leaves nothing unknown, so an unknown check there is not a pass.
    """
    return outcome.verdict.outcome == "ok" or (
        not outcome.options.demo and not outcome.verdict.violated
    )
