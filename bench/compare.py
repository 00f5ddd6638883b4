"""`python -m bench.compare REVISION`: compare the working tree with an earlier commit.

Each case of `bench.own` runs in a process of its own, first at the revision, then in the working
tree, and again for every round. A machine that slows down slows both. The table shows the ratio of
each figure, this tree to the revision, as the median and the range over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.markdown import figure, table
from bench.spread import Spread

REPOSITORY = Path(__file__).parents[1]
CASES = ("hundred", "lone", "items", "queue_runs", "imports")
Samples = dict[tuple[str, str], list[tuple[float, float]]]
"""Figures of both trees by case and name: one pair per round, the revision first."""


def main() -> None:
    given = _arguments()
    samples: Samples = {}
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder, "earlier")
        _git("worktree", "add", "--detach", str(earlier), given.revision)
        try:
            for number in range(1, given.rounds + 1):
                for case in given.cases:
                    print(f"round {number} of {given.rounds}: {case}", file=sys.stderr, flush=True)
                    before, after = (_measure(case, tree) for tree in (earlier, REPOSITORY))
                    for name in before.keys() & after.keys():
                        samples.setdefault((case, name), []).append((before[name], after[name]))
        finally:
            _git("worktree", "remove", "--force", str(earlier))
    print(_table(samples))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to measure (default 5)")
    parser.add_argument("--cases", nargs="+", default=list(CASES), help="cases of bench.own")
    return parser.parse_args()


def _git(*command: str) -> None:
    subprocess.run(["git", "-C", str(REPOSITORY), *command], check=True, capture_output=True)


def _measure(case: str, tree: Path) -> dict[str, float]:
    """Measure a case with the code of one tree, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.own.case", case],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _table(samples: Samples) -> str:
    rows = []
    for (case, name), pairs in sorted(samples.items()):
        before = Spread.of([pair[0] for pair in pairs])
        after = Spread.of([pair[1] for pair in pairs])
        ratio = Spread.of([new / old for old, new in pairs if old])
        rows.append(
            (
                case,
                name,
                figure(before.median),
                figure(after.median),
                f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
            )
        )
    return table(("case", "figure", "before", "now", "ratio"), rows)


if __name__ == "__main__":
    main()
