"""The tables and the plot of death and shutdown: for a reader who knows none of the systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.contest.plot import Bar, bars
from bench.contest.section import Found
from bench.contest.tables import NONE, last_line, spread_words, table
from bench.markdown import figure
from bench.spread import Spread

PATIENCE = "not within 60 s"
GOAL_P95_SECONDS = 1.0
REPEATED_SECONDS_MAX = 15.0
"""A trial that takes longer, from the start of its workers to its end, is made in the first round only."""

HEAD = f"""## Death and shutdown

What becomes of the work of a process that goes? Worker A has ten jobs under way, worker B is ready and has nothing to do. Then A is told to go (SIGTERM: a deploy, a scale-down, a spot machine), is killed
(kill -9 of its whole tree of processes: out of memory, a crash), or falls silent (SIGSTOP of all of it: a frozen machine, a cut network; nothing is closed, no lock is free). After SIGTERM it has a grace of 10 s; what is still there then is killed, as a kubelet does.
Each job is some *stages*, one after another, and each stage writes to a ledger outside when it begins and when it ends. All figures are read from that ledger, none from what a system says about itself. A is struck 0.3 s into the second stage of every job; the first takes no time.

A *stage* is a step for Outlast and DBOS, a task of a `chain` for Celery, a message of a `pipeline` for Dramatiq. Where the job is one function (Outlast's items, pgqueuer, Celery with one task, Dramatiq with one message) its stages are lines of that
function, and whoever takes it over begins at the first.

Who was done within {REPEATED_SECONDS_MAX:.0f} s, the start of both workers included, was tried in every round (*x 3*: three times); what takes longer, by its time-outs, was tried once.
"""

TITLES = {
    "fits": (
        "SIGTERM, with jobs that fit into the grace",
        "Three stages of 1 s each, after one that takes no time; A is told to go 0.3 s into the first of the three.",
    ),
    "long": (
        "SIGTERM, with jobs that do not fit, though each of their stages does",
        "14 stages of 1 s each: an agent's loop.",
    ),
    "single": (
        "SIGTERM, with a stage that does not fit",
        "One stage of 16 s: nobody can end it within 10 s, so it has to be done again by somebody. What differs is who notices when.",
    ),
    "killed": (
        "kill -9",
        "Five stages of 1 s each, after one that takes no time; A is killed, with all its processes, 0.3 s into the first of the five.",
    ),
    "silent": (
        "Silence",
        (
            "The same, but A is only stopped (SIGSTOP), and goes on when B has finished or the patience is over. Nobody can tell this from a slow machine but by waiting: every system has a time-out for "
            "it, and here each has the same 5 s where it can be set. A stage under way goes on when its worker is back, and its effect happens twice with everybody: that is the first 10 of *finished twice* (20 where the job is one function). What is beyond them is a worker that went on with jobs which were another's by then: it has no fence."
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
    "gone": "A is gone after",
    "status": "its exit status",
    "begun_after": "stages A began after the signal",
    "first": "another worker is on the first job after",
    "last": "on all of them after",
    "redone": "work done again",
    "twice": "stages finished twice",
    "finished": "all jobs finished after",
    "unfinished": "unfinished after 60 s",
}

LEGEND = """**The columns**

- *A is gone after*: from SIGTERM to the end of its first process. **killed**: it was still there when its grace was over.
- *its exit status*: 0 is an end in order; -15 an end by SIGTERM, -9 by SIGKILL.
- *stages A began after the signal*: new work begun by a process that had been told to go. Harmless where it ends in time.
- *another worker is on the first job after*, *on all of them after*: from the signal until B begins a stage of a job that A had, and until it has begun one of every job that A did not finish. "A finished all": there was nothing to take over.
- *work done again*: seconds of stages that were cut off, or had ended and were begun again, over all ten jobs.
- *stages finished twice*: their effects, such as a mail sent, happened twice.
- *stages finished twice* counts the stage that takes no time too: whoever begins a function again does that again.
- *unfinished after 60 s*: jobs that had not ended by then. *stuck*: its store still has them; *lost*: it has not.
"""

SETUP = """**How each was set up**, by what its documentation recommends for this, with what its defaults are

| | here | by default |
|---|---|---|
| Outlast | `outlast worker` with `OUTLAST_GRACE=10`, `OUTLAST_LEASE=5`; the rest as by default, its gentle start (`ramp`) too | grace 30 s; lease 30 s, which only counts where a process is silent: a death on the same host, or of a connection to the server, is noticed without it |
| DBOS | two executors with ids of their own and the same application version; a queue polled every 10 ms; a handler for SIGTERM, which is the driver's, calls `DBOS.destroy(workflow_completion_timeout_sec=8)`. *Restarted*: no other executor; A is started again under its id as soon as it is gone, which includes the start of the process | no handler: SIGTERM ends it at once. Polled every 1 s. Another executor takes over what a dead one had only by DBOS Conductor, a service that is not part of the library and was not measured (its documentation says after 60 s) |
| pgqueuer | `pgq run`, `heartbeat_timeout=5 s`, `dequeue_timeout=0.5 s`, 20 tasks at a time, batches of 10 | 30 s and 30 s: a death is noticed after 30 to 60 s. It waits for its jobs without end at SIGTERM |
| Celery | prefork, 20 processes, late acks, `task_reject_on_worker_lost`, no prefetching; `visibility_timeout` = the longest task and 10 s (5 s for the waiting for B), looked at every second (`unacked_restore_interval`, `unacked_restore_throttle`). Where a task does not fit into the grace, `REMAP_SIGTERM=SIGQUIT` and `worker_soft_shutdown_timeout=5` (with 8, it was not gone within 10 s) | acks before the task is done: a death loses it. Visibility one hour, counted from the delivery and not renewed, so it must be longer than the longest task; looked at every 100 s. SIGTERM waits without end. The death of a single child process is noticed at once, by its parent; that is not what is killed here |
| Dramatiq | one process of 20 threads, `heartbeat_timeout=5 s`, `maintenance_chance` of 1 in 1, `--worker-shutdown-timeout 8 s`; where a message does not fit into the grace, `notify_shutdown=True` with `min_backoff=2 s` (with less, the worker that is to go takes it again itself) | 60 s, looked for at 1 of 1,000 commands; shutdown waits 10 minutes; a told actor comes back after 15 s |
"""


def tables(found: Found) -> str:
    parts = [HEAD]
    if found["takeover"]:
        parts.append(_goal(found["takeover"]))
    for scenario, entrants in found["trials"].items():
        title, words = TITLES[scenario]
        names = COLUMNS[scenario]
        rows = [[_tries(name, trials), *_row(names, trials)] for name, trials in entrants.items()]
        parts.append(
            f"### {title}\n\n{words}\n\n{table(['', *[NAMES[name] for name in names]], rows)}\n"
        )
    if plots(found):
        parts.append("![Seconds until another worker is on all of them](benchmarks-death.svg)\n")
    parts += _failures(found["trials"])
    return "\n".join([*parts, LEGEND, SETUP])


def _tries(name: str, trials: Sequence[dict[str, Any]]) -> str:
    good = sum("failed" not in trial for trial in trials)
    return f"{name} x {good}" if good > 1 else name


def _failures(scenarios: dict[str, dict[str, list[dict[str, Any]]]]) -> list[str]:
    """Of every round: the tables have those that did not fail."""
    lines = [
        f"- {TITLES[scenario][0]}: {name}: {last_line([trial['failed']])}"
        for scenario, entrants in scenarios.items()
        for name, trials in entrants.items()
        for trial in trials
        if "failed" in trial
    ]
    return ["**What failed**\n", *lines, ""] if lines else []


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
    """It finished everything, in time."""
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
    head = [
        "kill -9 until another worker's first step",
        "kills",
        "p50",
        "p95",
        "worst",
        "goal: p95 under 1 s",
    ]
    return f"{table(head, rows)}\n"


PLOTTED = {
    "long": "SIGTERM, long jobs",
    "single": "SIGTERM, a long stage",
    "killed": "kill -9",
    "silent": "silence",
}


def plots(found: Found) -> dict[str, str]:
    groups = []
    for scenario, title in PLOTTED.items():
        drawn = [_bar(name, trials) for name, trials in found["trials"].get(scenario, {}).items()]
        if drawn:
            groups.append((title, drawn))
    if not any(bar.spread for _, group in groups for bar in group):
        return {}
    unit = "seconds from the signal until another worker is on all of A's jobs (shorter is better; the same length is the same factor)"
    return {"benchmarks-death.svg": bars("Death and shutdown", unit, groups)}


def _bar(name: str, trials: Sequence[dict[str, Any]]) -> Bar:
    kind = "ours" if name.startswith("Outlast") else "peer"
    good = [trial for trial in trials if "failed" not in trial]
    known = [trial["taken_last"] for trial in good if trial["taken_last"] is not None]
    if good and len(known) == len(good):
        return Bar(name, Spread.of(known), kind)
    return Bar(name, None, kind, _taken("taken_last")(good).replace("**", "") if good else "failed")
