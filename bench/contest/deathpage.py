"""Make the page on death and shutdown, for a reader who knows none of the systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.contest.plot import Bar, bars
from bench.contest.section import Found
from bench.contest.tables import NONE, Outcome, last_line, spread_words, table
from bench.markdown import figure
from bench.spread import Spread

PATIENCE = "not within 60 s"
GOAL_P95_SECONDS = 1.0
REPEATED_SECONDS_MAX = 15.0
"""A longer trial, from the start of its workers to its end, is made only in the first round."""

HEAD = f"""# Death and shutdown

What happens to the jobs of a worker that goes away?

Worker A has ten jobs in flight. Worker B is ready and idle. Then one of three things happens to A:

- **SIGTERM**, as at a deploy, a scale-down or a spot reclaim. A has a grace period of 10 s. Processes that are left after that are killed, as a kubelet does.
- **kill -9** of its whole process tree, as at an OOM kill or a crash.
- **SIGSTOP** of its whole process tree, as with a frozen machine or a cut network. Nothing is closed, and no lock is released.

Each job consists of *stages*, one after another. Each stage writes to an external ledger when it starts and when it ends. All figures come from that ledger, and none from a system's own reports. A is hit 0.3 s into the second stage of every job. The first stage takes no time.

A stage is a step for Outlast and DBOS, a task of a `chain` for Celery, and a message of a `pipeline` for Dramatiq. Some jobs are one function: Outlast's items, pgqueuer, Celery with one task, and Dramatiq with one message. Their stages are lines of that function, and a worker that takes the job over starts at the first line.

Trials that ended within {REPEATED_SECONDS_MAX:.0f} s, including the start of both workers, were made in every round (*x 3*: three times). Longer ones, which wait for time-outs, were made once.

## The table in the README

The README shows five of these cases: Outlast on SQLite, DBOS on Postgres, and Celery as chains of tasks on Redis, each configured as its documentation recommends. Outlast's lease is 5 s here; the default is 30 s.

- **SIGTERM.** Outlast finishes the current step and hands the rest of the job to B. A step that does not fit is stopped after about half of the grace period, so that it can clean up.
- **Frozen.** A frozen worker finishes its current step when it wakes up. By then B has repeated that step, so it completes twice. Outlast rejects what the frozen worker tries to record.
- **DBOS** resumes these jobs when the same executor restarts. With Conductor, a separate service, another executor can take them over. We did not measure that.
"""

TITLES = {
    "fits": (
        "SIGTERM: jobs fit into the grace period",
        "Three stages of 1 s each, after a first stage that takes no time. A gets SIGTERM 0.3 s into the first of the three.",
    ),
    "long": (
        "SIGTERM: jobs do not fit, but each of their stages does",
        "14 stages of 1 s each, like the loop of an agent.",
    ),
    "single": (
        "SIGTERM: one stage does not fit",
        "One stage of 16 s. No system can finish it within 10 s, so another worker must repeat it. The systems differ in which component notices, and when.",
    ),
    "killed": (
        "kill -9",
        "Five stages of 1 s each, after a first stage that takes no time. A and all its processes are killed 0.3 s into the first of the five.",
    ),
    "silent": (
        "Frozen, then resumed",
        (
            "The same jobs, but A is only stopped with SIGSTOP. It continues when B has finished, or after 60 s.\n\n"
            "No system can distinguish this from a slow machine except by waiting. Each has a time-out for it, set to 5 s here where possible.\n\n"
            "A stage in flight continues when its worker is back, so its effect happens twice with every system. That accounts for the first 10 *completed twice*, or 20 where the job is one function. Everything beyond them comes from a worker without a fence that continued jobs which already belonged to another worker."
        ),
    ),
}

COLUMNS_SIGTERM = (
    "gone",
    "status",
    "begun_after",
    "first",
    "last",
    "redone",
    "twice",
    "finished",
    "unfinished",
)
COLUMNS: dict[str, Sequence[str]] = {
    "fits": COLUMNS_SIGTERM,
    "long": COLUMNS_SIGTERM,
    "single": COLUMNS_SIGTERM,
    "killed": ("first", "last", "redone", "twice", "finished", "unfinished"),
    "silent": ("first", "last", "redone", "twice", "finished", "unfinished"),
}

NAMES = {
    "gone": "A exits after",
    "status": "exit status",
    "begun_after": "stages A started after the signal",
    "first": "first job resumed after",
    "last": "all jobs resumed after",
    "redone": "work repeated",
    "twice": "stages completed twice",
    "finished": "all jobs done after",
    "unfinished": "unfinished after 60 s",
}

LEGEND = """## What the columns mean

| column | meaning |
|---|---|
| A exits after | from SIGTERM to the end of A's first process. **killed**: it was still there when its grace period ended |
| exit status | 0 is an orderly exit, -15 a death by SIGTERM, -9 a death by SIGKILL |
| stages A started after the signal | new work in a process that was asked to stop. Harmless if it ends in time |
| first job resumed after | from the signal until B starts a stage of a job that A had. "A finished all": there was nothing to take over |
| all jobs resumed after | from the signal until B has started a stage of every job that A did not finish |
| work repeated | seconds of stages that were interrupted, or that ended and were started again, over all ten jobs |
| stages completed twice | their effects, such as a sent email, happened twice. Includes the stage that takes no time: restarting a function repeats it |
| unfinished after 60 s | jobs that had not ended by then. *stuck*: the store still has them. *lost*: it does not |
"""

SETUP = """## Configuration

Each system is configured as its documentation recommends for this case.

| system | here | default |
|---|---|---|
| Outlast | `outlast worker` with `OUTLAST_GRACE=10` and `OUTLAST_LEASE=5`. Everything else is the default, including its gentle start (`ramp`) | grace 30 s, lease 30 s. The lease matters only if a process is silent: a death on the same host, or of a connection to the server, is noticed without it |
| DBOS | two executors with their own ids and the same application version. A queue polled every 10 ms. The driver's SIGTERM handler calls `DBOS.destroy(workflow_completion_timeout_sec=8)`. *Restarted*: no other executor. A is started again under its id as soon as it is gone, and the figures include that start | no handler: SIGTERM ends it at once. Polled every 1 s. Another executor takes over from a dead one only with DBOS Conductor, a service that is not part of the library and was not measured. Its documentation says after 60 s |
| pgqueuer | `pgq run`, `heartbeat_timeout=5 s`, `dequeue_timeout=0.5 s`, 20 tasks at a time, batches of 10 | 30 s and 30 s: a death is noticed after 30 to 60 s. At SIGTERM it waits for its jobs without limit |
| Celery | prefork, 20 processes, late acks, `task_reject_on_worker_lost`, no prefetching. `visibility_timeout` is the longest task plus 10 s, 5 s of them because a job may be held until B is ready. It is checked every second (`unacked_restore_interval`, `unacked_restore_throttle`). If a task does not fit into the grace period, `REMAP_SIGTERM=SIGQUIT` and `worker_soft_shutdown_timeout=5`; with 8, it was not gone within 10 s | acks before the task is done: a death loses it. The visibility time-out is one hour from delivery and is not renewed, so it must exceed the longest task. It is checked every 100 s. SIGTERM waits without limit. The parent notices the death of a single child process at once, but that is not what is killed here |
| Dramatiq | one process of 20 threads, `heartbeat_timeout=5 s`, `maintenance_chance` of 1 in 1, `--worker-shutdown-timeout 8 s`. If a message does not fit into the grace period, `notify_shutdown=True` with `min_backoff=2 s`; with less, the worker that should stop takes the message again itself | 60 s, checked at 1 of 1,000 commands. Shutdown waits 10 minutes. A notified actor comes back after 15 s |
"""


def outcomes(found: Found) -> list[Outcome]:
    return [
        Outcome(f"{row[0]}: p95 of a takeover under {GOAL_P95_SECONDS:g} s", row[3], row[-1])
        for row in _takeover_rows(found["takeover"])
    ]


def tables(found: Found) -> str:
    parts = [HEAD]
    if found["takeover"]:
        parts.append(_goal(found["takeover"]))
    for scenario, entrants in found["trials"].items():
        title, words = TITLES[scenario]
        names = COLUMNS[scenario]
        rows = [[_tries(name, trials), *_row(names, trials)] for name, trials in entrants.items()]
        parts.append(
            f"## {title}\n\n{words}\n\n{table(['contender', *[NAMES[name] for name in names]], rows)}\n"
        )
    if plots(found):
        parts.append("![Seconds until another worker has resumed all jobs](benchmarks-death.svg)\n")
    parts += _failures(found["trials"])
    return "\n".join([*parts, LEGEND, SETUP])


def _tries(name: str, trials: Sequence[dict[str, Any]]) -> str:
    good = sum("failed" not in trial for trial in trials)
    return f"{name} x {good}" if good > 1 else name


def _failures(scenarios: dict[str, dict[str, list[dict[str, Any]]]]) -> list[str]:
    """List the failures of every round. The tables have the trials that did not fail."""
    lines = [
        f"- {TITLES[scenario][0]}: {name}: {last_line([trial['failed']])}"
        for scenario, entrants in scenarios.items()
        for name, trials in entrants.items()
        for trial in trials
        if "failed" in trial
    ]
    return ["## What failed\n", *lines, ""] if lines else []


def _row(names: Sequence[str], trials: Sequence[dict[str, Any]]) -> list[str]:
    good = [trial for trial in trials if "failed" not in trial]
    if not good:
        words = last_line([trial["failed"] for trial in trials])
        return [f"failed: {words}", *["" for _ in names[1:]]]
    return [CELLS[name](good) for name in names]


def _gone(trials: Sequence[dict[str, Any]]) -> str:
    killed = sum(trial["killed"] for trial in trials)
    if killed:
        return "**killed**" if killed == len(trials) else f"**killed** in {killed} of {len(trials)}"
    return f"{_spread(trials, 'exit_seconds')} s"


def _status(trials: Sequence[dict[str, Any]]) -> str:
    return ", ".join(sorted({str(trial["exit_status"]) for trial in trials}))


def _taken(key: str) -> Callable[[Sequence[dict[str, Any]]], str]:
    def cell(trials: Sequence[dict[str, Any]]) -> str:
        known = [trial for trial in trials if trial[key] is not None]
        alone = [trial for trial in trials if trial[key] is None and _is_a_alone(trial)]
        never = len(trials) - len(known) - len(alone)
        if never:
            return (
                f"**{PATIENCE}**"
                if never == len(trials)
                else f"**{PATIENCE}** in {never} of {len(trials)}"
            )
        if not known:
            return "A finished all"
        words = f"{_spread(known, key)} s"
        return f"{words}; A finished all in {len(alone)} of {len(trials)}" if alone else words

    return cell


def _is_a_alone(trial: dict[str, Any]) -> bool:
    """Return whether A finished every job in time."""
    return bool(trial["finished_by_a"] == trial["finished"] and not trial["unfinished"])


def _count(key: str) -> Callable[[Sequence[dict[str, Any]]], str]:
    def cell(trials: Sequence[dict[str, Any]]) -> str:
        counts = [trial[key] for trial in trials]
        low, high = min(counts), max(counts)
        return str(low) if low == high else f"{low} to {high}"

    return cell


def _redone(trials: Sequence[dict[str, Any]]) -> str:
    spread = Spread.of([trial["redone_seconds"] for trial in trials])
    low, high = f"{spread.low:.0f}", f"{spread.high:.0f}"
    return f"{low} s" if low == high else f"{low} to {high} s"


def _finished(trials: Sequence[dict[str, Any]]) -> str:
    return (
        NONE
        if any(trial["finished_last"] is None for trial in trials)
        else f"{_spread(trials, 'finished_last')} s"
    )


def _unfinished(trials: Sequence[dict[str, Any]]) -> str:
    worst = max(trials, key=lambda trial: trial["unfinished"])
    if not worst["unfinished"]:
        return "0"
    lost = max(0, worst["unfinished"] - worst["left"])
    words = [f"{worst['unfinished'] - lost} stuck"] if lost < worst["unfinished"] else []
    return "**" + ", ".join([*words, *([f"{lost} lost"] if lost else [])]) + "**"


def _spread(trials: Sequence[dict[str, Any]], key: str) -> str:
    return spread_words(Spread.of([trial[key] for trial in trials]))


CELLS: dict[str, Callable[[Sequence[dict[str, Any]]], str]] = {
    "gone": _gone,
    "status": _status,
    "begun_after": _count("begun_after"),
    "first": _taken("taken_first"),
    "last": _taken("taken_last"),
    "redone": _redone,
    "twice": _count("done_twice"),
    "finished": _finished,
    "unfinished": _unfinished,
}


def _goal(takeover: dict[str, dict[str, Any]]) -> str:
    head = [
        "kill -9 until another worker's first step",
        "kills",
        "p50",
        "p95",
        "worst",
        "goal: p95 under 1 s",
    ]
    return f"## Takeover after kill -9\n\n{table(head, _takeover_rows(takeover))}\n"


def _takeover_rows(takeover: dict[str, dict[str, Any]]) -> list[list[str]]:
    rows = []
    for name, one in takeover.items():
        laps = one["seconds"]
        if "failed" in one or not laps:
            rows.append(
                [
                    name,
                    f"{len(laps)}",
                    f"failed: {last_line([one.get('failed', '')])}",
                    "",
                    "",
                    "**MISSED**",
                ]
            )
            continue
        p50, p95 = laps[len(laps) // 2], laps[min(int(len(laps) * 0.95), len(laps) - 1)]
        met = "met" if p95 < GOAL_P95_SECONDS else "**MISSED**"
        rows.append(
            [name, str(len(laps)), *[f"{figure(value)} s" for value in (p50, p95, laps[-1])], met]
        )
    return rows


PLOTTED = {
    "long": "SIGTERM, long jobs",
    "single": "SIGTERM, a long stage",
    "killed": "kill -9",
    "silent": "frozen",
}


def plots(found: Found) -> dict[str, str]:
    groups = []
    for scenario, title in PLOTTED.items():
        drawn = [_bar(name, trials) for name, trials in found["trials"].get(scenario, {}).items()]
        if drawn:
            groups.append((title, drawn))
    if not any(bar.spread for _, group in groups for bar in group):
        return {}
    unit = "seconds from the signal until another worker has resumed all of A's jobs (shorter is better; logarithmic)"
    return {"benchmarks-death.svg": bars("Death and shutdown", unit, groups)}


def _bar(name: str, trials: Sequence[dict[str, Any]]) -> Bar:
    kind = "ours" if name.startswith("Outlast") else "peer"
    good = [trial for trial in trials if "failed" not in trial]
    known = [trial["taken_last"] for trial in good if trial["taken_last"] is not None]
    if good and len(known) == len(good):
        return Bar(name, Spread.of(known), kind)
    return Bar(name, None, kind, _taken("taken_last")(good).replace("**", "") if good else "failed")
