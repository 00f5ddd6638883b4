"""A worker as a manifest describes it, whatever kind of manifest that is. What is not said there is None."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"}
_LENGTH = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+(?:\.\d+)?)s?)?")

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
    env: Mapping[str, str] = field(default_factory=dict)
    env_elsewhere: bool = False
    """Some of its variables are in a file or a config map."""
    period: float | None = None
    """Seconds from the first sign to SIGKILL."""
    period_default: float | None = None
    """What it is where the manifest does not say; None: there is no such time."""
    period_name: str = ""
    pre_stop: float | None = 0.0
    """Seconds that a command takes before SIGTERM comes; None: not known."""
    stop_signal: str | None = None
    kill_mode: str | None = None
    replicas: int | None = None
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
    restart: str | None = None
    knows_75: bool = True
    """Of a Job: exit code 75, interrupted, is not counted as a failure."""

    @property
    def where(self) -> str:
        return f"{self.file}: {self.kind} {self.name}".rstrip()

    @property
    def is_worker(self) -> bool:
        """Whether this is about Outlast at all."""
        words = " ".join(self.command or ()) + " " + (self.shell or "")
        return (
            any(name.startswith("OUTLAST_") for name in self.env)
            or re.search(r"\boutlast\b", words) is not None
        )


def seconds_of(text: object) -> float | None:
    """A length of time as compose and systemd write it: 65, 65s, 1m5s, 1min 5s. None: not readable."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text)
    if not isinstance(text, str) or not text.strip():
        return None
    if text.strip() in ("infinity", "0"):
        return float("inf") if text.strip() == "infinity" else 0.0
    found = _LENGTH.fullmatch(text.replace(" ", "").replace("sec", "s"))
    if found is None or not any(found.groups()):
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def command_seconds(command: Sequence[str]) -> float | None:
    """How long a preStop command takes at the most, if that can be told: a sleep, or one with a time-out."""
    words = [word for word in command if word]
    if words and words[0].rpartition("/")[2] in SHELLS and "-c" in words:
        words = words[words.index("-c") + 1].split()
    if not words:
        return 0.0
    if words[0].rpartition("/")[2] in ("sleep", "timeout") and len(words) > 1:
        return seconds_of(words[1])
    for place, word in enumerate(words):
        if word == "--timeout" and place + 1 < len(words):
            return seconds_of(words[place + 1])
        if word.startswith("--timeout="):
            return seconds_of(word.partition("=")[2])
    if "drain" in words and "--wait" not in words:
        return 5.0  # it asks, and does not wait
    return None
