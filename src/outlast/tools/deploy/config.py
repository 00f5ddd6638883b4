"""Define the numbers of a deployment once, for the worker and for its environment."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields

from outlast.errors import SettingsError
from outlast.settings import Settings
from outlast.settings.variables import NO_FILES

BACKENDS = ("postgres", "redis", "sqlite")

MARGIN = 5
"""Seconds that the environment allows beyond what the worker needs.

They are for the kubelet, a busy node, and the container's own shutdown.
"""
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_MODULE = re.compile(r"[\w./:-]+", re.ASCII)
_IMAGE = re.compile(r"[a-zA-Z0-9]([\w./:@-]*\w)?", re.ASCII)
_PAGE = re.compile(r"https?://[\w.-]+(:\d+)?(/[\w./~%-]*)?", re.ASCII)
_NOT_NAMES = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""Words that YAML does not read as text."""
_LIMITS = {
    "grace": (1, 86_400),
    "pre_stop": (1, 3_600),
    "lease": (5, 3_600),
    "replicas": (1, 1_000),
    "replicas_max": (1, 10_000),
    "concurrency": (1, 100_000),
    "port": (1024, 65_535),
    "objective": (1, 86_400),
}
SCALE_SECONDS_MAX = 1_800
"""Longest period that Kubernetes allows for an autoscaler's policy."""


@dataclass(frozen=True, slots=True)
class DeploymentConfig:
    """Hold the numbers. Raise SettingsError for inconsistent ones, before anything is printed."""

    name: str = "agents"
    image: str = "agents:1"
    module: str = "agents.py"
    store: str = "postgres"
    grace: int = 60
    """Seconds a worker has from the first stop request: OUTLAST_GRACE."""
    pre_stop: int = 10
    """Seconds the preStop command waits for the drain it requested, before SIGTERM is sent."""
    lease: int = 30
    replicas: int = 3
    replicas_max: int = 12
    """Upper limit of autoscaling."""
    concurrency: int = 20
    port: int = 8080
    objective: int = 60
    """Seconds within which a worker should take over an interrupted run. Alerts use this."""
    runbook_base: str = ""
    """Address of a page made from runbook.md, for alerts. Outlast's own runbook is a command."""

    def __post_init__(self) -> None:
        self._check_texts()
        for field, (least, most) in _LIMITS.items():
            value = getattr(self, field)
            if type(value) is not int or not least <= value <= most:
                raise SettingsError(
                    f"--{field.replace('_', '-')} {value!r} must be a whole number "
                    f"from {least} to {most}."
                )
        if self.embedded and self.replicas > 1:
            raise SettingsError(
                f"--store sqlite is a file on one pod's volume: {self.replicas} replicas would be "
                f"{self.replicas} stores. Use --replicas 1, or --store postgres."
            )
        if self.replicas_max < self.replicas:
            raise SettingsError(
                f"--replicas-max {self.replicas_max} is below --replicas {self.replicas}. "
                "Raise it, or lower --replicas."
            )
        Settings.load({"grace": float(self.grace), "lease": float(self.lease)}, NO_FILES)

    def _check_texts(self) -> None:
        for field, pattern, example in (
            ("name", _NAME, "agents, in lower case, at most 40 characters"),
            ("image", _IMAGE, "registry/agents:1"),
            ("module", _MODULE, "agents.py or pkg.agents:app"),
        ):
            value = getattr(self, field)
            if (
                not pattern.fullmatch(value)
                or value.startswith("-")
                or (field == "name" and value in _NOT_NAMES)
            ):
                raise SettingsError(
                    f"--{field} {value!r} cannot be used in a manifest: write it like {example}."
                )
        if self.runbook_base and not _PAGE.fullmatch(self.runbook_base):
            raise SettingsError(
                f"--runbook-base {self.runbook_base!r} must be the address of a page, "
                "like https://docs.example/runbook/."
            )
        if self.store not in BACKENDS:
            raise SettingsError(f"--store {self.store!r} must be one of {', '.join(BACKENDS)}.")

    @property
    def embedded(self) -> bool:
        return self.store == "sqlite"

    @property
    def period(self) -> int:
        """Return terminationGracePeriodSeconds.

        Its clock starts before the preStop command, and SIGTERM comes after that command.
        """
        return self.pre_stop + self.grace + MARGIN

    @property
    def stop(self) -> int:
        """Return the seconds between SIGTERM and SIGKILL where there is no preStop command."""
        return self.grace + MARGIN

    @property
    def scale_down(self) -> int:
        """Return the seconds in which an autoscaler removes one pod.

        This is a whole drain, as far as Kubernetes allows.
        """
        return min(self.period, SCALE_SECONDS_MAX)

    @property
    def stall_max(self) -> int:
        """Return OUTLAST_STALL_MAX: a blocked loop is noticed while its lease still holds."""
        return min(int(Settings().stall_max), self.lease * 2 // 3)

    @property
    def health_stall(self) -> int:
        """Return how long the loop may block before /health fails.

        This is longer than a drain, so that no probe ends one.
        """
        return self.period

    @property
    def progress_deadline(self) -> int:
        """Return progressDeadlineSeconds.

        It covers one pod after another, each with a start and a whole drain.
        """
        return max(600, math.ceil(self.replicas * (self.period + 30) * 1.5))

    @property
    def grace_warning(self) -> float:
        """Return the length of a drain, in seconds, from which the dashboard shows it in red."""
        return self.grace * 0.9

    @property
    def extras(self) -> str:
        """Return the extras of the package that the image installs."""
        return "http" if self.embedded else f"{self.store},http"

    def command(self, kind: str) -> str:
        """Return the command that prints the same document again.

        It names every non-default option, and always --store and --grace.
        """
        given = [
            f"--{field.name.replace('_', '-')} {getattr(self, field.name)}"
            for field in fields(self)
            if field.name in ("store", "grace") or getattr(self, field.name) != field.default
            # An embedded store always has one replica.
            if not (field.name == "replicas" and self.embedded)
        ]
        return " ".join(("outlast manifest --kind", kind, *given))
