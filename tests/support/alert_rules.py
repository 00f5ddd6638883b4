"""Read the rules that `outlast manifest --kind alerts` writes."""

from typing import Any

import yaml

from outlast.tools.deploy.config import DeploymentConfig
from outlast.tools.deploy.documents import DOCUMENTS


def alerts_text(config: DeploymentConfig) -> str:
    """Return the file for Prometheus."""
    return DOCUMENTS["alerts"].write(config)


def rules_of(kind: str, config: DeploymentConfig | None = None) -> dict[str, dict[str, Any]]:
    """Return the rules of a kind, `alert` or `record`, by name."""
    (group,) = yaml.safe_load(alerts_text(config or DeploymentConfig()))["groups"]
    return {rule[kind]: rule for rule in group["rules"] if kind in rule}
