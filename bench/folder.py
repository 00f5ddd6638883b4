"""The folder measured in. Everything depends on its disk: on a tmpfs a durable commit costs nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_MEMORY = frozenset({"tmpfs", "ramfs"})


@contextmanager
def measuring_folder(given: Path | None) -> Iterator[Path]:
    """An empty folder, gone afterwards: in `given`, else on the disk of the working directory."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="outlast-bench-", dir=given or _same_disk(Path.cwd())
    ) as made:
        yield Path(made).resolve()


def _same_disk(here: Path) -> Path:
    """The system's folder for such things if it is on the same disk, so that no working copy is littered."""
    temporary = Path(tempfile.gettempdir())
    return temporary if temporary.stat().st_dev == here.stat().st_dev else here


def file_system(folder: Path) -> str:
    """Its type as the kernel calls it, "unknown" where there is no way to ask."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return "unknown"
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"
