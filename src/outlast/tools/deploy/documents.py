"""Render the deployment documents: plain files in `templates/` with a few placeholders.

`@name@` stands for an attribute of the configuration, and `@command@` for the command that prints
the document again. Lines between `@if WORD ...` and `@end` are kept if one of the words
is the store, or `runbook` where a runbook page is given.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

from outlast.tools.deploy.config import BACKENDS, DeploymentConfig


class Document(NamedTuple):
    kind: str
    path: str
    """Path in `deploy/`."""
    template: str
    stores: tuple[str, ...] = BACKENDS
    """Stores it can be written for. The first is the one in `deploy/`."""

    def write(self, config: DeploymentConfig) -> str:
        """Return the document for this configuration."""
        text = (files(__package__) / "templates" / self.template).read_text(encoding="utf-8")
        names = {config.store, "runbook"} if config.runbook_base else {config.store}

        def value(found: re.Match[str]) -> str:
            name = found[1]
            return config.command(self.kind) if name == "command" else str(getattr(config, name))

        return re.sub(r"@(\w+)@", value, _selected(text, names))


def _selected(text: str, names: set[str]) -> str:
    """Return the lines outside conditions, and those whose condition names one of the words."""
    lines = []
    is_kept = True
    for line in text.splitlines(keepends=True):
        if line.startswith("@if "):
            is_kept = not names.isdisjoint(line.split()[1:])
        elif line == "@end\n":
            is_kept = True
        elif is_kept:
            lines.append(line)
    return "".join(lines)


DOCUMENTS = {
    one.kind: one
    for one in (
        Document("dockerfile", "Dockerfile", "Dockerfile"),
        Document("dockerignore", ".dockerignore", "dockerignore"),
        Document("compose", "compose.yaml", "compose.yaml"),
        Document(
            "deployment", "kubernetes/deployment.yaml", "deployment.yaml", ("postgres", "redis")
        ),
        Document("statefulset", "kubernetes/statefulset.yaml", "statefulset.yaml", ("sqlite",)),
        Document(
            "systemd", "systemd/agents.service", "worker.service", ("sqlite", "postgres", "redis")
        ),
        Document("alerts", "prometheus/alerts.yaml", "alerts.yaml"),
        Document("dashboard", "grafana/outlast.json", "dashboard.json"),
    )
}
