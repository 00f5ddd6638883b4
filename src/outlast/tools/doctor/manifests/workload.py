"""Describe a worker as any kind of manifest defines it. What the manifest omits is None."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from outlast.settings.variables import PREFIX
from outlast.tools.doctor.manifests.shell import Command
from outlast.tools.doctor.manifests.values import seconds_of


class Period(NamedTuple):
    """The time from the first stop request to SIGKILL."""

    name: str
    seconds: float | None
    """None if it is in another file or a variable, and so unknown here."""
    is_default: bool = False


def has_ours(env: Iterable[str]) -> bool:
    return any(name.startswith(PREFIX) for name in env)


def period(name: str, value: object, default: float, *, elsewhere: bool = False) -> Period:
    if value is None and not elsewhere:
        return Period(name, default, is_default=True)
    return Period(name, seconds_of(value))


@dataclass(frozen=True, slots=True)
class Workload:
    kind: str
    """Deployment, StatefulSet, …, compose, systemd or Dockerfile."""
    name: str
    file: str
    command: Command
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    env_unquoted: tuple[str, ...] = ()
    """Variables whose value is a number or a boolean, where Kubernetes accepts only strings."""
    env_elsewhere: bool = False
    """Whether some of its variables are in a file or a config map."""
    period: Period | None = None
    """None if there is no such limit."""
    pre_stop: float | None = 0.0
    """Seconds a command takes before SIGTERM is sent. None if unknown."""
    stop_signal: str | None = None
    kill_mode: str | None = None
    replicas: int | None = None
    pinned: bool = False
    """Whether all its pods are on one node."""
    surge: str = ""
    unavailable: str = ""
    recreate: bool = False
    progress_deadline: float | None = None
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Volume kind by mount path: emptyDir, ephemeral, tmpfs, nfs, readonly, or volume."""
    liveness: str = ""
    """The path of the liveness probe."""
    liveness_patience: float = math.inf
    probed: bool = False
    """Whether it has a probe of any kind."""
    probe_ports: tuple[int, ...] = ()
    """Ports of the HTTP probes, as far as they are numbers or names of listed ports."""
    ignores_75: bool = False
    """For a Job: whether exit code 75 (interrupted) is not counted as a failure."""

    @property
    def where(self) -> str:
        return f"{self.file}: {self.kind} {self.name}".rstrip()

    @property
    def is_ours(self) -> bool:
        """Return whether this workload concerns Outlast at all."""
        return self.command.arguments is not None or has_ours(self.env)

    @property
    def is_worker(self) -> bool:
        """Return whether it executes runs, as far as can be told.

        `outlast migrate` and similar commands end by themselves and drain nothing.
        """
        arguments = self.command.arguments
        return self.is_ours and (not arguments or arguments[0] in ("worker", "run"))
