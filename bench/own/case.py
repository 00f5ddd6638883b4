"""One case in a process of its own: `python -m bench.own.case NAME --dir FOLDER` prints its numbers as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from bench.folder import measuring_folder
from bench.own.fleet import claims, items, pickup, queue_runs
from bench.own.imports import imports
from bench.own.keys import keys, postgres_keys, redis_keys
from bench.own.memory import memory
from bench.own.publish import measured as publish
from bench.own.raw import raw
from bench.own.replay import replay
from bench.own.runs import hundred, lone, thousand
from bench.own.server import server
from bench.own.stores import file, postgres, postgres_growth, redis, redis_everysec, redis_growth
from bench.own.telemetry import telemetry
from bench.own.viewers import postgres_viewers, redis_viewers, viewers
from bench.own.worker import worker

CASES: dict[str, Callable[[Path], dict[str, float]]] = {
    "raw": raw,
    "lone": lone,
    "hundred": hundred,
    "thousand": thousand,
    "replay": replay,
    "items": items,
    "queue_runs": queue_runs,
    "claims": claims,
    "keys": keys,
    "pickup": pickup,
    "imports": imports,
    "memory": memory,
    "worker": worker,
    "server": server,
    "postgres": postgres,
    "redis": redis,
    "redis_everysec": redis_everysec,
    "file": file,
    "postgres_growth": postgres_growth,
    "redis_growth": redis_growth,
    "postgres_keys": postgres_keys,
    "redis_keys": redis_keys,
    "telemetry": telemetry,
    "publish": publish,
    "viewers": viewers,
    "postgres_viewers": postgres_viewers,
    "redis_viewers": redis_viewers,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.own.case", description=__doc__)
    parser.add_argument("name", choices=CASES)
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure")
    given = parser.parse_args()
    with measuring_folder(given.dir) as folder:
        print(json.dumps(CASES[given.name](folder)))


if __name__ == "__main__":
    main()
