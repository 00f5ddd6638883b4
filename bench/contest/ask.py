"""Asking a driver: its program in its own environment, one answer a call, or a worker that stays."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.contest.contenders import Contender
from bench.contest.environments import python_of

DRIVERS = Path(__file__).parent / "drivers"
PATIENCE = 300.0
"""Seconds that a driver has for an answer."""


class Failed(Exception):
    """A driver gave no answer. Its last words are the message; the bench goes on without it."""


def command(
    contender: Contender, verb: str, tell: Callable[[str], None], **options: object
) -> list[str]:
    words = [str(python_of(contender, tell)), str(DRIVERS / contender.driver), verb]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if value is True else [flag, str(value)]
    return words


def environment() -> dict[str, str]:
    """Ours, without what would configure a contender behind its driver's back."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(("OUTLAST_", "PYTHON", "DBOS_"))
    }


def ask(
    contender: Contender, verb: str, tell: Callable[[str], None], **options: object
) -> dict[str, Any]:
    words = command(contender, verb, tell, **options)
    try:
        done = subprocess.run(
            words,
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=DRIVERS,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{contender.name} {verb}: no answer in {PATIENCE:.0f} s") from None
    if done.returncode:
        raise Failed(f"{contender.name} {verb}: exit {done.returncode}: {done.stderr[-1500:]}")
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed(
            f"{contender.name} {verb}: no answer: {(done.stdout + done.stderr)[-1500:]}"
        ) from None
    return answer
