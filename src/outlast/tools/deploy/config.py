"""One set of numbers. What a worker gives itself and what its surroundings give it are said once, here."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Literal, get_args

from outlast.errors import SettingsError
from outlast.settings import Settings
from outlast.settings.variables import NO_FILES

Backend = Literal["postgres", "redis", "sqlite"]
BACKENDS: tuple[str, ...] = get_args(Backend)

MARGIN = 5
"""Seconds that the surroundings give more than the worker takes: for the kubelet, a busy node, and the container's own end."""
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_MODULE = re.compile(r"[\w./:-]+", re.ASCII)
_IMAGE = re.compile(r"[a-zA-Z0-9]([\w./:@-]*\w)?", re.ASCII)
_PAGE = re.compile(r"https?://[\w.-]+(:\d+)?(/[\w./~%-]*)?", re.ASCII)
_NOT_NAMES = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""What YAML takes for something else than a text."""
SCALE_SECONDS_MAX = 1_800
"""What Kubernetes allows as the period of an autoscaler's policy."""


@dataclass(frozen=True, slots=True)
class DeploymentConfig:
    """SettingsError for numbers that cannot stand beside each other, before anything is printed."""

    name: str = "agents"
    image: str = "agents:1"
    module: str = "agents.py"
    store: str = "postgres"
    grace: int = 60
    """Seconds that a worker has from the first sign to stop: OUTLAST_GRACE."""
    pre_stop: int = 10
    """Seconds that the preStop command waits for the drain it has asked for, before SIGTERM comes."""
    lease: int = 30
    replicas: int = 3
    replicas_max: int = 12
    """What autoscaling ends at."""
    concurrency: int = 20
    port: int = 8080
    objective: int = 60
    """Seconds in which an interrupted run is to be taken up again. Alerts go by it."""
    runbook_base: str = ""
    """The address of a page made from runbook.md, for alerts: what Outlast has of its own is a command."""

    def __post_init__(self) -> None:
        self._check_words()
        for field, least, most in (
            ("grace", 1, 86_400), ("pre_stop", 1, 3_600), ("lease", 5, 3_600), ("replicas", 1, 1_000),
            ("replicas_max", 1, 10_000), ("concurrency", 1, 100_000), ("port", 1024, 65_535), ("objective", 1, 86_400),
        ):  # fmt: skip
            value = getattr(self, field)
            if type(value) is not int or not least <= value <= most:
                raise SettingsError(
                    f"--{field.replace('_', '-')} {value!r} must be a whole number from {least} to {most}."
                )
        if self.embedded and self.replicas > 1:
            raise SettingsError(
                f"--store sqlite is a file on one pod's volume: {self.replicas} replicas would be {self.replicas} stores. "
                "Use --replicas 1, or --store postgres."
            )
        if self.replicas_max < self.replicas:
            raise SettingsError(
                f"--replicas-max {self.replicas_max} is below --replicas {self.replicas}."
            )
        Settings.load({"grace": float(self.grace), "lease": float(self.lease)}, NO_FILES)

    def _check_words(self) -> None:
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
                    f"--{field} {value!r} cannot stand in a manifest: write it like {example}."
                )
        if self.runbook_base and not _PAGE.fullmatch(self.runbook_base):
            raise SettingsError(
                f"--runbook-base {self.runbook_base!r} must be the address of a page, like https://docs.example/runbook/."
            )
        if self.store not in BACKENDS:
            raise SettingsError(f"--store {self.store!r} is none of {', '.join(BACKENDS)}.")

    @property
    def embedded(self) -> bool:
        return self.store == "sqlite"

    @property
    def period(self) -> int:
        """terminationGracePeriodSeconds: its clock starts before the preStop command, and SIGTERM comes after it."""
        return self.pre_stop + self.grace + MARGIN

    @property
    def stop(self) -> int:
        """What has no preStop command gives so many seconds between SIGTERM and SIGKILL."""
        return self.grace + MARGIN

    @property
    def scale_down(self) -> int:
        """Seconds in which an autoscaler takes one pod away: a whole drain, as far as Kubernetes allows it."""
        return min(self.period, SCALE_SECONDS_MAX)

    @property
    def stall_max(self) -> int:
        """OUTLAST_STALL_MAX: a loop that stands still is noticed while its lease still holds."""
        return min(int(Settings().stall_max), self.lease * 2 // 3)

    @property
    def health_stall(self) -> int:
        """Seconds that the loop may stand still before /health says so: longer than a drain, so that no probe ends one."""
        return self.period

    @property
    def progress_deadline(self) -> int:
        """progressDeadlineSeconds: every pod in its turn, each with a start and a whole drain."""
        return max(600, math.ceil(self.replicas * (self.period + 30) * 1.5))

    def command(self, kind: str) -> str:
        """What prints the same document again: whatever is not as it is unless given, and the two that everybody looks for."""
        given = [
            f"--{field.name.replace('_', '-')} {getattr(self, field.name)}"
            for field in fields(self)
            if field.name in ("store", "grace") or getattr(self, field.name) != field.default
            if not (field.name == "replicas" and self.embedded)  # one, and no choice
        ]
        return " ".join(("outlast manifest --kind", kind, *given))
