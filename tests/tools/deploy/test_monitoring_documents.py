"""The alert rules and the dashboard."""

import json

import pytest
import yaml
from manifest_tools import OTHER, documents, schema, written

from outlast.errors import SettingsError
from outlast.explain.texts import find
from outlast.telemetry.names import RECOVERY_SECONDS
from outlast.tools.deploy.config import DeploymentConfig
from support.alert_rules import rules_of


def test_alert_rules_are_valid_and_follow_the_objective():
    (found,) = documents("alerts", "postgres", **OTHER)
    schema("alerts").validate(found)
    by_name = {rule["alert"]: rule for rule in found["groups"][0]["rules"] if "alert" in rule}
    assert list(by_name) == list(rules_of("alert"))
    assert f"> {OTHER['objective']}" in by_name["OutlastRecoverySlow"]["expr"]


def annotations_of(text: str) -> dict[str, dict[str, str]]:
    (group,) = yaml.safe_load(text)["groups"]
    return {rule["alert"]: rule["annotations"] for rule in group["rules"] if "alert" in rule}


def test_each_alert_names_its_runbook_entry():
    for name, said in annotations_of(written("alerts", "postgres")).items():
        assert said["runbook"] == f"outlast explain {name}"
        assert find(name).kind == "alert"
        assert "runbook_url" not in said
    (found,) = documents("alerts", "postgres", runbook_base="https://docs.example/runbook/")
    schema("alerts").validate(found)
    for name, said in annotations_of(
        written("alerts", "postgres", runbook_base="https://docs.example/runbook/")
    ).items():
        assert said["runbook_url"] == f"https://docs.example/runbook/#{find(name).anchor}"


@pytest.mark.parametrize("base", ["docs", "ftp://docs.example", "https://d.example/#a", "https://d.example/' x: '", "https://d.example/{{ $value }}", "javascript:1"])  # fmt: skip
def test_an_invalid_runbook_address_is_refused(base):
    with pytest.raises(SettingsError, match="--runbook-base"):
        DeploymentConfig(runbook_base=base)


def test_the_recovery_histogram_exceeds_every_objective():
    """A quantile is never above the greatest bound of its histogram."""
    for objective in (60, 900, 3_600, 86_399):
        assert DeploymentConfig(objective=objective).objective < RECOVERY_SECONDS[-1]


def test_dashboard_panels_do_not_overlap_and_have_queries():
    board = json.loads(written("dashboard", "postgres"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, f"{panel['title']} lies on another"
        assert all(x < 24 for x, _ in cells)
        taken |= cells
        assert panel["type"] == "row" or all(target["expr"] for target in panel["targets"])
