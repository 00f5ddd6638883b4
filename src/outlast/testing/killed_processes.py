"""Crash real processes with SIGKILL at every write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from outlast.testing.crash_report import Broke, CrashReport

ADDRESS = "OUTLAST_TEST_CRASH_STORE"
"""The environment variable with the store's address, for a life that is a process."""


def crash_processes(
    target: str,
    args: Sequence[str] = (),
    *,
    folder: Path,
    every: int = 1,
    timeout: float = 60.0,
    store: Callable[[str], str] | None = None,
) -> CrashReport[Any]:
    """Crash real processes: each life that is to crash kills itself with SIGKILL at its Nth write.

    `target` is FILE:WORKFLOW, as for `outlast run`, and `args` are JSON texts. `every` is the step
    between the Ns that are tried. The report's `result` is plain JSON.

    Each story has its own store: a SQLite file in `folder`, or the address that `store` returns for
    the story's name (`before-7`). Nothing may exist there yet.
    """
    report: CrashReport[Any] = CrashReport()
    place = store or (lambda name: f"sqlite:///{quote(str(folder.resolve() / name))}.db")
    undisturbed = _process(target, args, place("undisturbed"), None, "after", timeout)
    expected = undisturbed.stdout
    if not expected:
        raise Broke(f"{target} did not end, even without a crash: {undisturbed.stderr[-2000:]}")
    end = json.loads(expected)
    report.result, report.error = end.get("result"), end.get("error")
    at = 1
    while True:
        hit = False
        for when in ("before", "after"):
            address = place(f"{when}-{at}")
            first = _process(target, args, address, at, when, timeout)
            report.lives += 1
            if first.returncode == -9:
                hit = True
                report.crashes += 1
                last = _process(target, args, address, None, when, timeout)
                report.lives += 1
            else:
                last = first
            if last.stdout != expected:
                raise Broke(
                    f"after SIGKILL {when} write {at}, the run ended with "
                    f"{last.stdout or last.returncode}. Without a crash it ended with {expected}\n"
                    f"{last.stderr[-2000:]}"
                )
        if not hit:
            return report
        report.writes = at
        at += every


def _process(
    target: str, args: Sequence[str], address: str, at: int | None, when: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "outlast.testing.crash_process",
        "-",
        str(at or 0),
        when,
        target,
        *args,
    ]
    # An address may contain a password, which the process list would show.
    environment = {**os.environ, ADDRESS: address}
    return subprocess.run(  # noqa: S603 - our own
        command, capture_output=True, text=True, timeout=timeout, check=False, env=environment
    )
