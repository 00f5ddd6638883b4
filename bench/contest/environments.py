"""Create an environment for each peer under `.cache/bench/`, once. Outlast shares none of them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.contest.contenders import Contender

REPOSITORY = Path(__file__).parents[2]
HOMES = REPOSITORY / ".cache" / "bench"


def python_of(contender: Contender, tell: Callable[[str], None]) -> Path:
    """The interpreter to execute its driver with. Makes the environment where there is none for these packages."""
    if not contender.packages:
        return Path(sys.executable)
    words = [sys.version.split()[0], *contender.packages]
    home = HOMES / f"{contender.driver.removesuffix('_driver.py')}-{_digest(words)}"
    python, complete = home / "bin" / "python", home / ".complete"
    if not complete.exists():
        tell(
            f"{contender.name}: making an environment of its own ({', '.join(contender.packages)})"
        )
        _run(sys.executable, "-m", "venv", "--clear", home)
        _run(
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *contender.packages,
        )
        complete.touch()
    return python


def _digest(words: list[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def _run(*command: object) -> None:
    done = subprocess.run(
        [str(word) for word in command], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
