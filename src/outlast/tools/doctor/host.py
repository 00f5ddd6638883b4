"""Read processes and file systems of this machine. Without /proc, nothing is known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"}
SIGTERM = 1 << 14
_OCTAL = re.compile(r"\\([0-7]{3})")


class Process(NamedTuple):
    pid: int
    parent: int
    name: str
    """Name of its program, without the path."""
    command: tuple[str, ...]
    ignores_term: bool
    catches_term: bool


class Mount(NamedTuple):
    point: str
    kind: str
    """The file system type: ext4, nfs4, overlay, …"""
    source: str


def process(pid: int, proc: Path = Path("/proc")) -> Process | None:
    try:
        status = (proc / str(pid) / "status").read_text(errors="replace")
        command = (
            (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        )
    except OSError:
        return None
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    name = command[0].rpartition("/")[2] if command else fields.get("Name", "")
    return Process(
        pid,
        int(fields.get("PPid", "0")),
        name.lstrip("-"),
        tuple(command),
        bool(int(fields.get("SigIgn", "0"), 16) & SIGTERM),
        bool(int(fields.get("SigCgt", "0"), 16) & SIGTERM),
    )


def ancestry(pid: int, proc: Path = Path("/proc")) -> tuple[Process, ...]:
    """Return a process and its parents, PID 1 last. Empty if the process does not exist."""
    chain: list[Process] = []
    while pid > 0 and len(chain) < 100 and (found := process(pid, proc)) is not None:
        chain.append(found)
        pid = found.parent
    return tuple(chain)


def folder_of(path: Path) -> Path:
    """Return the folder of a path, or the nearest existing one above it."""
    there = path if path.is_dir() else path.parent
    while not there.exists() and there != there.parent:
        there = there.parent
    return there


def mount_of(path: Path, table: Path = Path("/proc/self/mountinfo")) -> Mount | None:
    """Return the mount that contains this path. None where the system does not report it."""
    try:
        lines = table.read_text().splitlines()
        path = path.resolve()
    except OSError:
        return None
    best: Mount | None = None
    for line in lines:
        before, mark, after = line.partition(" - ")
        fields = before.split()
        kind = after.split()
        if not mark or len(fields) < 5 or len(kind) < 2:
            continue
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        if path.is_relative_to(point) and (best is None or len(point) >= len(best.point)):
            best = Mount(point, kind[0], kind[1])
    return best
