"""Describe a worker as any kind of manifest defines it. What the manifest omits is None."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"}
_UNITS = {
    "us": 1e-6,
    "ms": 1e-3,
    "": 1,
    "s": 1,
    "sec": 1,
    "second": 1,
    "seconds": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "minutes": 60,
    "h": 3600,
    "hr": 3600,
    "hour": 3600,
    "hours": 3600,
    "d": 86_400,
    "day": 86_400,
    "days": 86_400,
    "w": 604_800,
    "week": 604_800,
    "weeks": 604_800,
}
_LENGTH = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.ASCII)

ELSEWHERE = "<elsewhere>"
"""The value of a variable that is in another file or a secret."""


@dataclass(frozen=True, slots=True)
class Workload:
    kind: str
    """Deployment, StatefulSet, …, compose, systemd or Dockerfile."""
    name: str
    file: str
    image: str = ""
    command: tuple[str, ...] | None = None
    """In exec form, as far as the manifest has it."""
    shell: str | None = None
    """The command line given to a shell."""
    shell_name: str = "sh"
    script: str | None = None
    """The script given to a shell."""
    asks: tuple[str, ...] | None = None
    """Arguments of `outlast`. None if this manifest does not call it."""
    env: Mapping[str, str] = field(default_factory=dict)
    env_unquoted: tuple[str, ...] = ()
    """Variables whose value is a number or a boolean, where Kubernetes accepts only strings."""
    env_elsewhere: bool = False
    """Whether some of its variables are in a file or a config map."""
    period: float | None = None
    """Seconds from the first stop request to SIGKILL."""
    period_default: float | None = None
    """The default period. None if there is no such limit."""
    period_elsewhere: bool = False
    """Whether the period is in another file or a variable, and so unknown here."""
    period_name: str = ""
    pre_stop: float | None = 0.0
    """Seconds a command takes before SIGTERM is sent. None if unknown."""
    stop_signal: str | None = None
    kill_mode: str | None = None
    replicas: int | None = None
    pinned: bool = False
    """Whether all its pods are on one node."""
    surge: str | None = None
    unavailable: str | None = None
    recreate: bool = False
    progress_deadline: float | None = None
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Volume kind by mount path: emptyDir, tmpfs, claim, host, volume, …"""
    liveness: str | None = None
    """The path of the liveness probe."""
    liveness_patience: float | None = None
    readiness: str | None = None
    probed: bool = False
    """Whether it has a probe of any kind."""
    probe_ports: tuple[int, ...] = ()
    """Ports of the HTTP probes, as far as they are numbers or names of listed ports."""
    restart: str | None = None
    knows_75: bool = True
    """For a Job: whether exit code 75 (interrupted) is not counted as a failure."""

    @property
    def where(self) -> str:
        return f"{self.file}: {self.kind} {self.name}".rstrip()

    @property
    def is_ours(self) -> bool:
        """Return whether this workload concerns Outlast at all."""
        return has_ours(self.env) or self.asks is not None

    @property
    def is_worker(self) -> bool:
        """Return whether it executes runs, as far as can be told.

        `outlast migrate` and similar commands end by themselves and drain nothing.
        """
        return self.is_ours and (not self.asks or self.asks[0] in ("worker", "run"))


def has_ours(env: Mapping[str, str]) -> bool:
    return any(name.startswith("OUTLAST_") for name in env)


def seconds_of(text: object) -> float | None:
    """Parse a duration as Kubernetes, compose and systemd write it: 65, 65s, 1m5s, 1min 5s.

    Return None if it is not readable.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return None if math.isnan(text) else float(text)
    if not isinstance(text, str) or not text.strip():
        return None
    if text.strip() == "infinity":
        return math.inf
    parts = _LENGTH.findall(text)
    if _LENGTH.sub("", text).strip() or any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
