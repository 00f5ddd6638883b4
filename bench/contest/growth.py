"""Growth: what a step, a claim and a recovery cost when there are a million runs, ten thousand entries, or a megabyte in a value; and how much room it takes.

Outlast only, one round: each figure is a median of many. Each store has a server of its own, and what is compared is in the same process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.contest.contenders import Store
from bench.contest.environments import REPOSITORY
from bench.contest.plot import Bar, bars
from bench.contest.section import Found, Section
from bench.contest.servers import stores
from bench.contest.store_size import WORDS
from bench.contest.tables import NONE, last_line, table
from bench.markdown import figure
from bench.spread import Spread

RUNS = (1_000, 1_000_000)
JOURNALS = (10, 100, 1_000, 10_000)
VALUES = (1_000, 10_000, 100_000, 1_000_000)
SIZES: dict[str, tuple[int, ...]] = {
    "runs": RUNS,
    "journals": JOURNALS,
    "values": VALUES,
    "space": (),
}
PATIENCE = 1_800.0
"""Seconds for one answer: a million runs are put in first."""
STORES: dict[Store, str] = {
    "sqlite": "SQLite",
    "postgres": "Postgres",
    "redis": "Redis, fsync every second",
}


class Cost(NamedTuple):
    """A figure of `grown runs`, and what it is in words. `rate`: more of it is better."""

    name: str
    words: str
    rate: bool = False


COSTS = (
    Cost("lone_step_ms", "a step of a single run, ms"),
    Cost("hundred_steps_per_second", "100 runs at once, steps/s", rate=True),
    Cost("hundred_cpu_us", "100 runs at once, CPU per step, µs"),
    Cost("claim_ms", "claim of one run, ms"),
    Cost("seen_ms", "kill -9 of a worker until it is noticed, ms"),
    Cost("sweep_ms", "releasing its run, ms"),
    Cost("reclaim_ms", "claiming that run again, ms"),
)


def measure(folder: Path, rounds: int, tell: Callable[[str], None]) -> Found:
    """In one round, however many were asked for."""
    del rounds
    found: Found = {}
    for kind, place in STORES.items():
        home = folder / kind
        home.mkdir()
        with stores(home, {kind}) as opened:
            for verb, sizes in SIZES.items():
                tell(f"{place}: {verb} {' '.join(f'{size:,}' for size in sizes)}")
                opened.clear()
                addresses = [opened.fresh(kind) for _ in (sizes if verb == "runs" else (1,))]
                found.setdefault(kind, {})[verb] = _ask(verb, addresses, sizes, tell)
    return found


def _ask(
    verb: str, addresses: Sequence[str], sizes: Sequence[int], tell: Callable[[str], None]
) -> dict[str, Any]:
    """In a process of its own."""
    words = [sys.executable, "-m", "bench.contest.grown", verb, "--store", *addresses]
    words += ["--sizes", *map(str, sizes)]
    try:
        done = subprocess.run(
            words, cwd=REPOSITORY, check=False, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer in {PATIENCE:.0f} s"}
    if done.returncode:
        tell(f"failed: {done.stderr[-1500:]}")
        return {"failed": done.stderr[-1500:]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


# -- telling

INTRODUCTION = """# Growth

What a step, a claim and a recovery of Outlast cost with a million runs in the store, ten thousand entries in a journal, or a megabyte in a value.

Only Outlast is measured here, in one round. Each figure is the median of many measurements in one process.
"""
RUNS_WORDS = """## Runs in the store

Two stores are measured in turn, one with 1,000 runs and one with 1,000,000. One run in fifty has ended. The others are queued and belong to ten workflows. The last column is the factor by which the cost grows.

For a recovery, a real worker claims a run, records a step, and is killed. Another process looks for dead workers every 5 ms, releases the run and claims it, ahead of everything that is queued. The time until a death is noticed does not depend on the size: a worker is declared dead after a moment without a heartbeat.
"""
JOURNAL_WORDS = """## Entries in a journal

A single run has recorded this many steps. *Next step* is the time of one more step. *Replay* is the time from starting the run again, as a new process would, until the body of the next step starts. It includes claiming, reading and replaying.
"""
VALUE_WORDS = """## Size of a value

Ten runs at once return text of this many bytes from each step. The text does not compress. Each case has between 40 and 2,000 steps.
"""
SPACE_WORDS = """## Space

100 runs of 100 steps with values of 100 bytes. *Bytes per step* is the growth of the store, and *log* is what the server wrote to its log meanwhile.

Then all runs are pruned with `app.prune`, the same runs are made and pruned again, and the store is made as small as possible. Sizes are KB above the empty store.
"""


def tables(found: Found) -> str:
    parts = [
        INTRODUCTION,
        RUNS_WORDS,
        _runs_table(found),
        "![What a million runs cost](benchmarks-growth.svg)",
        JOURNAL_WORDS,
        _sizes_table(
            found,
            "journals",
            JOURNALS,
            {"next_step_ms": "next step, ms", "replay_ms": "replay, ms"},
            "entries",
        ),
        VALUE_WORDS,
        _sizes_table(
            found,
            "values",
            VALUES,
            {
                "steps_per_second": "steps/s",
                "megabytes_per_second": "MB/s",
                "cpu_us": "CPU per step, µs",
            },
            "bytes",
        ),
        SPACE_WORDS,
        _space_table(found),
        _space_notes(found),
    ]
    failures = _failures(found)
    if failures:
        parts.append(f"## What failed\n\n{failures}")
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _runs_table(found: Found) -> str:
    rows = []
    for kind, verbs in found.items():
        answer = verbs["runs"]
        for cost in COSTS:
            small, large = (_number(answer, size, cost.name) for size in RUNS)
            grown = _grown(answer, cost)
            rows.append(
                [STORES[kind], cost.words, small, large, f"{figure(grown)}x" if grown else NONE]
            )
    return table(["store", "cost", *[f"{size:,} runs" for size in RUNS], "growth"], rows)


def _number(answer: Mapping[str, Any], size: int, name: str) -> str:
    if "failed" in answer:
        return "failed"
    return figure(answer[str(size)][name]) if str(size) in answer else NONE


def _grown(answer: Mapping[str, Any], cost: Cost) -> float | None:
    if "failed" in answer:
        return None
    small, large = (float(answer[str(size)][cost.name]) for size in RUNS)
    return small / large if cost.rate else large / small


def _sizes_table(
    found: Found, verb: str, sizes: Sequence[int], names: Mapping[str, str], unit: str
) -> str:
    rows = [
        [STORES[kind], words, *[_number(verbs[verb], size, name) for size in sizes]]
        for kind, verbs in found.items()
        for name, words in names.items()
    ]
    return table(["store", "", *[f"{size:,} {unit}" for size in sizes]], rows)


def _space_table(found: Found) -> str:
    rows = []
    for kind, verbs in found.items():
        answer = verbs["space"]
        if "failed" in answer:
            rows.append([STORES[kind], "failed", *[""] * 5])
            continue
        above = [
            f"{(answer[name] - answer['empty']) / 1000:,.0f}"
            for name in ("filled", "pruned", "filled_again", "shrunk")
        ]
        log = f"{answer['written_a_step']:,.0f}" if answer["written_a_step"] else NONE
        rows.append([STORES[kind], f"{answer['bytes_a_step']:,.0f}", log, *above])
    return table(
        [
            "store",
            "bytes per step",
            "log",
            "filled, KB",
            "pruned",
            "filled again",
            "pruned and shrunk",
        ],
        rows,
    )


def _space_notes(found: Found) -> str:
    rows = [
        [STORES[kind], words["bytes"], words["tidy"], words["shrink"]]
        for kind, words in WORDS.items()
        if "failed" not in found.get(kind, {}).get("space", {"failed": ""})
    ]
    return table(["store", "the size is", "after pruning", "to shrink it"], rows) if rows else ""


def _failures(found: Found) -> str:
    rows = [
        [STORES[kind], verb, last_line([answer["failed"]])]
        for kind, verbs in found.items()
        for verb, answer in verbs.items()
        if "failed" in answer
    ]
    return table(["store", "what", "last output"], rows) if rows else ""


def plots(found: Found) -> dict[str, str]:
    groups = []
    for kind, verbs in found.items():
        shown = []
        for cost in COSTS:
            grown = _grown(verbs["runs"], cost)
            spread = Spread(grown, grown, grown) if grown else None
            shown.append(
                Bar(
                    cost.words.rpartition(",")[0],
                    spread,
                    "ours",
                    f"{figure(grown)}x" if grown else "failed",
                )
            )
        groups.append((STORES[kind], shown))
    title = "Cost with 1,000,000 runs in the store, relative to 1,000"
    return {
        "benchmarks-growth.svg": bars(
            title, "factor; 1 means no difference", groups, logarithmic=False
        )
    }


GROWTH = Section(
    "growth",
    measure,
    tables,
    plots,
    "Growth",
    "What do a step and a recovery cost with a million runs, long journals or large values?",
    once=True,
)
