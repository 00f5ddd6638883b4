"""Measure Outlast beside its peers on this machine: `python -m bench.contest`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import traceback
from pathlib import Path

from bench.contest.environments import REPOSITORY
from bench.contest.place import place, when
from bench.contest.report import SECTIONS, write
from bench.folder import IN_MEMORY, file_system, measuring_folder

RESULTS = REPOSITORY / "bench" / "results.json"


def main() -> None:
    given = _arguments()
    if given.page:
        write(json.loads(RESULTS.read_text())["sections"], REPOSITORY)
        return
    kept = json.loads(RESULTS.read_text()) if given.write and RESULTS.exists() else {}
    found, broken = kept.get("sections", {}), []
    end_once()
    measured_at = when()  # before writing the pages makes the tree dirty
    with measuring_folder(given.dir) as folder:
        if file_system(folder) in IN_MEMORY:
            _tell(
                f"{folder.parent} is in memory: a durable commit costs nothing there, so the ratios mean nothing."
            )
        for section in SECTIONS:
            if section.name in given.sections:
                home = folder / section.name
                home.mkdir()
                try:
                    measured = section.measure(home, given.rounds, _tell)
                except Exception:  # the others do not depend on it
                    _tell(f"{section.name} failed:\n{traceback.format_exc()}")
                    broken.append(section.name)
                    continue
                rounds = 1 if section.once else given.rounds
                found[section.name] = {
                    "when": measured_at,
                    "place": place(folder),
                    "rounds": rounds,
                    "found": measured,
                }
                print(section.tables(measured), flush=True)
                # Write after each section, so that a later failure does not lose an hour of measuring.
                if given.write:
                    RESULTS.write_text(json.dumps({"sections": found}, indent=1) + "\n")
                    write(found, REPOSITORY)
    if broken:
        sys.exit(f"not measured, see the errors above: {', '.join(broken)}")


def end_once() -> None:
    """End everything on the first Ctrl-C or SIGTERM, and ignore later ones.

    A second signal would leave behind the workers and servers that are being ended.
    """

    def end(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _arguments() -> argparse.Namespace:
    names = [section.name for section in SECTIONS]
    parser = argparse.ArgumentParser(prog="python -m bench.contest", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"{', '.join(names)} (default: all)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often everything is measured (default 3)"
    )
    parser.add_argument(
        "--dir", type=Path, help="a folder on the disk to measure (default: the disk worked on)"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="save the results in bench/results.json and write docs/benchmarks*.md, the pictures and the README's table",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="measure nothing, and write these files again from bench/results.json",
    )
    given = parser.parse_args()
    unknown = sorted(set(given.sections) - set(names))
    if unknown:
        parser.error(f"no section is called {', '.join(unknown)}: there are {', '.join(names)}.")
    if given.rounds < 1:
        parser.error("--rounds must be at least 1.")
    given.sections = given.sections or names
    return given


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
