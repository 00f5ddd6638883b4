"""The Compose file, the image and the systemd unit."""

import json
import re
from configparser import ConfigParser

import pytest
from manifest_tools import OTHER, documents, schema, written

from outlast.settings import Settings
from outlast.tools.deploy.config import MARGIN
from outlast.tools.deploy.documents import DOCUMENTS


@pytest.mark.parametrize("store", DOCUMENTS["compose"].stores)
@pytest.mark.parametrize("chosen", [{}, OTHER], ids=["default", "other"])
def test_compose_files_are_valid(store, chosen):
    (found,) = documents("compose", store, **chosen)
    schema("compose").validate(found)
    used = {
        volume.partition(":")[0]
        for service in found["services"].values()
        for volume in service["volumes"]
    }
    assert used == set(found["volumes"])
    wanted = {name for service in found["services"].values() for name in service.get("secrets", ())}
    assert wanted == set(found.get("secrets", ()))


@pytest.mark.parametrize("store", DOCUMENTS["compose"].stores)
def test_compose_stops_the_agent_only_after_its_grace(store):
    (found,) = documents("compose", store, **OTHER)
    agent = found["services"]["agent"]
    assert agent["stop_grace_period"] == f"{OTHER['grace'] + MARGIN}s"
    assert {"data:/data", "logs:/logs"} <= set(agent["volumes"])
    env = {
        name: value for name, value in agent["environment"].items() if name != "OUTLAST_STORE_FILE"
    }
    assert Settings.load({}, env).grace == OTHER["grace"]


def test_a_compose_file_has_the_servers_of_its_store_and_each_is_durable():
    found = {store: documents("compose", store)[0] for store in DOCUMENTS["compose"].stores}
    servers = {store: set(one["services"]) - {"agent"} for store, one in found.items()}
    assert servers == {"postgres": {"postgres"}, "redis": {"redis"}, "sqlite": set()}
    assert ["secrets" in one for one in found.values()] == [
        "postgres" in of for of in servers.values()
    ]
    assert {
        store: set(one["volumes"]) - {"data", "logs"} for store, one in found.items()
    } == servers
    redis = found["redis"]["services"]["redis"]["command"]
    assert redis[redis.index("--appendonly") + 1] == "yes"
    assert redis[redis.index("--maxmemory-policy") + 1] == "noeviction"


def test_the_image_is_in_exec_form_and_not_root():
    lines = re.sub(r"\\\n\s*", "", written("dockerfile", "postgres", **OTHER)).splitlines()
    words = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    last = dict(words)
    assert json.loads(last["ENTRYPOINT"]) == ["outlast"]
    assert json.loads(last["CMD"]) == ["worker", OTHER["module"]]
    assert json.loads(last["HEALTHCHECK"].partition("CMD ")[2])[0] == "python"
    assert last["USER"].partition(":")[0].isdigit()
    assert last["USER"].partition(":")[0] != "0"
    assert [rest for word, rest in words if word == "FROM"][-1].endswith("-slim")
    settings = dict(
        part.split("=", 1)
        for word, rest in words
        if word == "ENV"
        for part in rest.split()
        if "OUTLAST" in part
    )
    assert Settings.load({}, settings).grace == OTHER["grace"]


@pytest.mark.parametrize("store", DOCUMENTS["systemd"].stores)
def test_systemd_stops_the_worker_only_after_its_grace(store):
    lines = written("systemd", store, **OTHER)
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(lines)
    service = unit["Service"]
    assert service["TimeoutStopSec"] == str(OTHER["grace"] + MARGIN)
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")
    assert (
        service["ExecStart"] == f"/opt/bots/.venv/bin/outlast worker {OTHER['module']} --log json"
    )
    said = [
        part
        for line in lines.splitlines()
        if line.startswith("Environment=")
        for part in line[12:].split()
    ]
    env = dict(part.split("=", 1) for part in said)
    assert ("OUTLAST_STORE_FILE" in env) == (store != "sqlite"), "a password is in no unit"
    env.pop("OUTLAST_STORE_FILE", None)
    assert Settings.load({}, env).grace == OTHER["grace"]
