"""Measure everything and print one table: `python -m bench.own`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
from pathlib import Path

from bench.folder import IN_MEMORY, file_system, measuring_folder
from bench.own.case import CASES
from bench.own.rounds import measure
from bench.own.rows import results
from bench.own.table import numbers, table


def main() -> None:
    given = _arguments()
    with measuring_folder(given.dir) as folder:
        system = file_system(folder)
        place = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} CPUs, {folder.parent} ({system})"
        if system in IN_MEMORY:
            _tell(
                f"{folder.parent} is in memory: a durable commit costs nothing there, so the ratios mean nothing."
            )
        samples = measure(given.cases, given.rounds, folder, _tell)
    found = results(samples)
    print(f"{place}, {given.rounds} rounds\n\n{table(found)}")
    if given.json is not None:
        report = {
            "place": place,
            "rounds": given.rounds,
            "rows": numbers(found),
            "samples": samples,
        }
        given.json.write_text(json.dumps(report, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.own", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often everything is measured (default 3)"
    )
    parser.add_argument(
        "--dir", type=Path, help="a folder on the disk to measure (default: the disk worked on)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.add_argument(
        "--cases", nargs="+", choices=CASES, default=list(CASES), help="only these (default all)"
    )
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds must be at least 1.")
    return given


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
