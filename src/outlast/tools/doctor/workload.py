"""A worker as a manifest describes it, whatever kind of manifest that is. What is not said there is None."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"}
_UNITS = {
    "us": 1e-6, "ms": 1e-3, "": 1, "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600, "d": 86_400, "day": 86_400, "days": 86_400, "w": 604_800, "week": 604_800, "weeks": 604_800,
}  # fmt: skip
_LENGTH = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.ASCII)

ELSEWHERE = "<elsewhere>"
"""The value of a variable that another file or a secret has."""


@dataclass(frozen=True, slots=True)
class Workload:
    kind: str
    """Deployment, StatefulSet, …, compose, systemd or Dockerfile."""
    name: str
    file: str
    image: str = ""
    command: tuple[str, ...] | None = None
    """In exec form, as far as it is said here."""
    shell: str | None = None
    """The command line that a shell is given."""
    shell_name: str = "sh"
    script: str | None = None
    """The file that a shell is given."""
    asks: tuple[str, ...] | None = None
    """What `outlast` is given; None: it is not called by this manifest."""
    env: Mapping[str, str] = field(default_factory=dict)
    env_unquoted: tuple[str, ...] = ()
    """Variables whose value is a number or a truth value, where Kubernetes takes only texts."""
    env_elsewhere: bool = False
    """Some of its variables are in a file or a config map."""
    period: float | None = None
    """Seconds from the first sign to SIGKILL."""
    period_default: float | None = None
    """What it is where the manifest does not say; None: there is no such time."""
    period_elsewhere: bool = False
    """It is said in another file, or by a variable: it is not known here."""
    period_name: str = ""
    pre_stop: float | None = 0.0
    """Seconds that a command takes before SIGTERM comes; None: not known."""
    stop_signal: str | None = None
    kill_mode: str | None = None
    replicas: int | None = None
    pinned: bool = False
    """All its pods are on one node."""
    surge: str | None = None
    unavailable: str | None = None
    recreate: bool = False
    progress_deadline: float | None = None
    mounts: Mapping[str, str] = field(default_factory=dict)
    """What lies at a path: emptyDir, tmpfs, claim, host, volume, …"""
    liveness: str | None = None
    """The path that the liveness probe asks for."""
    liveness_patience: float | None = None
    readiness: str | None = None
    probed: bool = False
    """Whether it has a probe of any kind."""
    probe_ports: tuple[int, ...] = ()
    """Where the kubelet asks over HTTP, as far as that is a number, or the name of a port that is listed."""
    restart: str | None = None
    knows_75: bool = True
    """Of a Job: exit code 75, interrupted, is not counted as a failure."""

    @property
    def where(self) -> str:
        return f"{self.file}: {self.kind} {self.name}".rstrip()

    @property
    def is_ours(self) -> bool:
        """Whether this is about Outlast at all."""
        return has_ours(self.env) or self.asks is not None

    @property
    def is_worker(self) -> bool:
        """Whether it executes runs, as far as can be told: `outlast migrate` and its like end by themselves and drain nothing."""
        return self.is_ours and (not self.asks or self.asks[0] in ("worker", "run"))


def has_ours(env: Mapping[str, str]) -> bool:
    return any(name.startswith("OUTLAST_") for name in env)


def seconds_of(text: object) -> float | None:
    """A length of time as Kubernetes, compose and systemd write it: 65, 65s, 1m5s, 1min 5s. None: not readable."""
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
