"""List every document by kind: its path in `deploy/`, and the function that writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from outlast.tools.deploy import alerts, compose, dashboard, dockerfile, kubernetes, systemd
from outlast.tools.deploy.config import DeploymentConfig


class Document(NamedTuple):
    path: str
    """Path in `deploy/`."""
    write: Callable[[DeploymentConfig], str]
    stores: tuple[str, ...] = ("postgres", "redis", "sqlite")
    """Stores it can be written for. The first is the one in `deploy/`."""


DOCUMENTS = {
    "dockerfile": Document("Dockerfile", dockerfile.dockerfile),
    "dockerignore": Document(".dockerignore", dockerfile.dockerignore),
    "compose": Document("compose.yaml", compose.compose),
    "deployment": Document(
        "kubernetes/deployment.yaml", kubernetes.deployment, ("postgres", "redis")
    ),
    "statefulset": Document("kubernetes/statefulset.yaml", kubernetes.statefulset, ("sqlite",)),
    "systemd": Document("systemd/agents.service", systemd.unit, ("sqlite", "postgres", "redis")),
    "alerts": Document("prometheus/alerts.yaml", alerts.alerts),
    "dashboard": Document("grafana/outlast.json", dashboard.dashboard),
}
