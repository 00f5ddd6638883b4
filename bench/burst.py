"""After a burst: a rolling deploy gives everything back at once, and a new fleet takes it up, with and without a gentle start.

    python -m bench.burst --write docs      # what `make burst` does: docs/burst.md and its plots
    python -m bench.burst --workers 5 --returned 500 --limit 300 --new-rate 2 --ramp 10

Both start from one and the same store, and from one seed: the figures are the same every time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from bench.burst_fleet import AT_ONCE, GENTLE, Outcome, Scene, burst, recovery
from bench.burst_plot import plot

COLUMNS = ("without", "with the gentle start")
BACKLOG: dict[str, Any] = {"slots": 20, "limit": 600, "new_rate": 10.0, "new_seconds": 100.0}
"""The second scene: the same runs come back to a fleet of the default concurrency, which cannot hold them all at once."""


@dataclass
class Pair:
    """A scene without and with."""

    scene: Scene
    without: Outcome
    gentle: Outcome

    def svg(self) -> str:
        scene = self.scene
        title = f"{scene.returned:,} runs returned at once to {scene.workers} workers of {scene.slots} slots"
        return plot(list(zip(COLUMNS, (self.without, self.gentle), strict=True)), title)


def main() -> None:
    scene, gentle, folder = _arguments()
    if folder is None:
        print(_table(_pairs([scene], gentle)[0]))
        return
    held, backlog = _pairs([scene, replace(scene, **BACKLOG)], gentle)
    (folder / "burst.svg").write_text(held.svg())
    (folder / "burst-backlog.svg").write_text(backlog.svg())
    (folder / "burst.md").write_text(_page(held, backlog))
    print(f"{_table(held)}\n\n{_table(backlog)}")


def _pairs(scenes: list[Scene], gentle: dict[str, float]) -> list[Pair]:
    """Each simulation in a process of its own, two at a time."""
    with ProcessPoolExecutor(2) as pool:
        images = list(pool.map(burst, scenes))
        jobs = [
            (scene, image, settings)
            for scene, image in zip(scenes, images, strict=True)
            for settings in (AT_ONCE, gentle)
        ]
        outcomes: Iterator[Outcome] = pool.map(recovery, *zip(*jobs, strict=True))
        pairs = [Pair(scene, next(outcomes), next(outcomes)) for scene in scenes]
    for pair in pairs:
        for outcome in (pair.without, pair.gentle):
            check(outcome)
    return pairs


def check(outcome: Outcome) -> None:
    """Every run has ended, once, and every question that was left has been answered once."""
    scene = outcome.scene
    runs = scene.returned + len(outcome.new_waits)
    assert outcome.statuses == {"done": runs}, outcome.statuses
    assert outcome.lives_max == 2, "nothing was interrupted twice"
    assert set(outcome.answered.values()) == {1}
    asked = {run for run, _ in outcome.answered}
    assert len(asked) == runs


def _table(pair: Pair) -> str:
    rows = [("", *COLUMNS), ("---", "---:", "---:")]
    without, gentle = _figures(pair.without), _figures(pair.gentle)
    rows += [(label, without[label], gentle[label]) for label in without]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _figures(outcome: Outcome) -> dict[str, str]:
    begun = outcome.begun_returned + outcome.begun_new
    first = sum(at < 1.0 for at in begun)
    waits, done = outcome.waits, outcome.returned_done
    return {
        "calls in flight at the model API, peak": f"{outcome.peak:,}",
        "calls refused with 429": f"{len(outcome.refused):,}",
        "last refusal, after": f"{max(outcome.refused):.1f} s" if outcome.refused else "-",
        "runs begun in the first second": f"{first:,}",
        "wait of a new run for its first step, p50": f"{_percentile(waits, 50):.2f} s",
        "the same, p95": f"{_percentile(waits, 95):.2f} s",
        "the same, longest": f"{waits[-1]:.2f} s",
        "half of the returned runs have ended after": f"{_percentile(done, 50):.1f} s",
        "all of the returned runs have ended after": f"{done[-1]:.1f} s",
    }


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _page(held: Pair, backlog: Pair) -> str:
    scene, other = held.scene, backlog.scene
    settings = ", ".join(f"`{name}={value:g}`" for name, value in held.gentle.settings.items())
    return f"""# After a burst

*Written by `make burst`, which is `python -m bench.burst --write docs`; seed {scene.seed}. Do not edit.*

A rolling deploy gives back everything that was under way, at once. A worker starts gently: its slots open one after the
other (`ramp`), returned runs are metered (`returned_rate`), and a share of the slots is left to new runs (`new_share`). This is
what it is for, and what it costs. *With* is {settings}; *without* is none of it.

## As many slots as runs

{scene.returned:,} runs that were under way come back to {scene.workers} workers of {scene.slots} slots.

![Calls in flight, refusals, runs begun and waits of new runs, without and with the gentle start](burst.svg)

{_table(held)}

## Fewer slots than runs

The same {other.returned:,} runs, and workers of {other.slots} slots (the default), so {other.workers * other.slots:,} in all; a model API of {other.limit:,} calls at once;
{other.new_rate:g} new runs a second.

![The same for a fleet with fewer slots than returned runs](burst-backlog.svg)

{_table(backlog)}

## What it costs

The slots kept for new runs stay empty when there are none, so returned runs are through later: after {held.gentle.returned_done[-1]:.0f} s instead of
{held.without.returned_done[-1]:.0f} s in the first scene, {backlog.gentle.returned_done[-1]:.0f} s instead of {backlog.without.returned_done[-1]:.0f} s in the second. While slots open, a new run may find none free: the longest waits
*with* are of the first seconds.

`ramp` helps as far as it is longer than the calls that would otherwise begin together. Calls of five seconds and more want ten or
more:

    python -m bench.burst --workers 10 --returned 1000 --limit 700 --new-rate 2 --call-seconds 5 --work-seconds 7.5 --ramp 10

`returned_rate` changes nothing here, because no worker gets slots free that fast: it is for returned runs that have so little left
to do that a worker would otherwise read and replay more than so many of them a second.

## What is simulated

The workers are the real ones, one `Outlast(worker=True)` for each, on one store in memory and on a virtual clock: claims,
replays, steps, retries and ends are the code that runs in production. The time they take is not part of it, nor is the disk.

- A run is an agent: it asks the model, then works for {scene.work_seconds:g} s (half to one and a half of it), and that some times over. A returned run
  was interrupted in its second call, and has 1 to {scene.turns_left_max} turns left. A new one has {scene.new_turns}.
- The model API takes {scene.call_seconds:g} s for a call when it is idle and twice that at its limit of {scene.limit:,} calls, a fifth more or less. Above that
  it refuses, after {scene.refusal_seconds:g} s, with a 429, which counts as in flight too. The step is tried again after 1 s, 2 s, 4 s … up to 30 s, with jitter.
- All workers start at the same moment, which is the worst case: a deploy that rolls starts them one after the other.
- New runs come at random, {scene.new_rate:g} a second for {scene.new_seconds:g} s.

In every simulation each run ended once, and each call was answered once: it is checked before anything is written.
The limit was chosen so that all slots together, out of step, stay below it; in step they do not. With a limit above the number of
slots nothing is refused either way, and what is left of the difference is how long new runs wait.
"""


def _arguments() -> tuple[Scene, dict[str, float], Path | None]:
    """What to simulate, the settings of the gentle start, and where to write."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.burst", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--write", type=Path, metavar="FOLDER", help="write the page and its plots there"
    )
    for name, default in ({field.name: field.default for field in fields(Scene)} | GENTLE).items():
        assert isinstance(default, int | float)
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(
            option, type=type(default), default=default, help=f"default {default:g}"
        )
    given = vars(parser.parse_args())
    folder = given.pop("write")
    if folder is not None and not folder.is_dir():
        sys.exit(f"{folder} is no folder.")
    gentle = {name: given.pop(name) for name in GENTLE}
    return Scene(**given), gentle, folder


if __name__ == "__main__":
    main()
