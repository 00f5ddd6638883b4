"""Add the checks that only the process which injected the faults can make."""

from __future__ import annotations

from outlast.tools.chaos.faults import FaultInjector
from outlast.tools.chaos.fleet import Fleet
from outlast.tools.chaos.load_generator import LoadGenerator
from outlast.tools.chaos.options import Options
from outlast.tools.chaos.verdict import Verdict, percentiles


def check_experiment(
    verdict: Verdict, options: Options, fleet: Fleet, faults: FaultInjector, load: LoadGenerator
) -> None:
    """Add the checks that need the submissions and the faults."""
    drains = verdict["drains"]
    ended = verdict["ended"]
    redone = verdict["redone"]
    drains.looked_at = len(faults.drains) + len(faults.too_late)
    drains.facts = {"grace": options.grace, "seconds": percentiles(faults.drains)}
    for text in faults.too_late:
        drains.violate(text)
    for text in fleet.surprises:
        ended.violate(text)
    if not load.acknowledged or load.unsure:
        ended.violate(
            f"of {load.rate.tried} submissions {load.unsure} were never acknowledged: "
            f"{load.away or 'no reason was given'}"
        )
    if not faults.injected and (planned := len(options.plan())):
        verdict["recovery"].violate(
            f"none of {planned} faults was injected: no worker could be hit"
        )
    for text in load.cancellations.wrong:
        verdict["none lost"].violate(text)
    ended.facts["acknowledged"] = len(load.acknowledged)
    verdict["dead letters and parked"].facts["decided_by_a_person"] = (
        0 if load.decisions is None else load.decisions.count
    )
    struck = sum(
        kind in ("term", "kill", "stop") for member in fleet.members for _, kind in member.faults
    )
    again = redone.facts.get("bodies_begun_again")
    redone.facts["faults_on_workers"] = struck
    if again is not None and struck:
        redone.facts["per_fault"] = round(again / struck, 3)
