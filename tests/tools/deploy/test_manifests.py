"""Documents made from one set of numbers: they are valid, they agree, and `deploy/` has them as they come out."""

import json
import re
import subprocess
import sys
from configparser import ConfigParser
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from jsonschema import Draft202012Validator

from outlast.cli import main
from outlast.errors import SettingsError
from outlast.explain.texts import find
from outlast.settings import Settings
from outlast.settings.load import load
from outlast.telemetry.names import RECOVERY_SECONDS
from outlast.tools.deploy.config import MARGIN, DeploymentConfig
from outlast.tools.deploy.documents import DOCUMENTS
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Level
from outlast.tools.doctor.grace import leases
from outlast.tools.doctor.manifests import read
from outlast.tools.doctor.registry import IN_MANIFESTS, examine
from support.alert_rules import rules_of
from support.cli import answer_in
from support.waiting import WAIT_SECONDS

DEPLOY = Path(__file__).parents[3] / "deploy"
SCHEMAS = Path(__file__).parent / "schemas"
CASES = [(kind, store) for kind, document in DOCUMENTS.items() for store in document.stores]
OTHER = {"grace": 137, "pre_stop": 23, "lease": 41, "concurrency": 7, "port": 9137, "objective": 219, "name": "bots", "image": "reg.example/bots:7", "module": "pkg.bots:app", "runbook_base": "https://docs.example:8443/a/runbook.html"}  # fmt: skip


def numbers_for(store: str, **chosen) -> DeploymentConfig:
    return DeploymentConfig(store=store, replicas=1 if store == "sqlite" else 3, **chosen)


def written(kind: str, store: str, **chosen) -> str:
    return DOCUMENTS[kind].write(numbers_for(store, **chosen))


def documents(kind: str, store: str, **chosen) -> list[dict]:
    return list(yaml.safe_load_all(written(kind, store, **chosen)))


@cache
def schema(name: str) -> Draft202012Validator:
    found = json.loads((SCHEMAS / f"{name}.json").read_text())
    Draft202012Validator.check_schema(found)
    return Draft202012Validator(found)


def of_kind(found: list[dict], kind: str) -> dict:
    (one,) = [document for document in found if document["kind"] == kind]
    return one


def worker_of(found: list[dict]) -> tuple[dict, dict, dict[str, str]]:
    """The pod's spec, its container, and the variables that have plain values."""
    (spec,) = [
        one["spec"]["template"]["spec"]
        for one in found
        if one["kind"] in ("Deployment", "StatefulSet")
    ]
    (container,) = spec["containers"]
    return (
        spec,
        container,
        {one["name"]: one["value"] for one in container["env"] if "value" in one},
    )


@pytest.fixture
def manifest(tmp_path, capsys):
    return lambda *words: answer_in(tmp_path, ["manifest", *words], capsys)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_the_folder_has_each_as_it_comes_out(kind):
    document = DOCUMENTS[kind]
    there = (DEPLOY / document.path).read_text(encoding="utf-8")
    assert there == written(kind, document.stores[0]), (
        "write it again: outlast manifest --write deploy"
    )


@pytest.mark.parametrize(
    ("kind", "store"), [case for case in CASES if case[0] in ("deployment", "statefulset")]
)
@pytest.mark.parametrize("chosen", [{}, OTHER], ids=["default", "other"])
def test_kubernetes_manifests_are_valid(kind, store, chosen):
    for document in documents(kind, store, **chosen):
        schema("kubernetes").validate(document)


@pytest.mark.parametrize(("kind", "store"), [("deployment", "postgres"), ("statefulset", "sqlite")])
def test_only_the_monitoring_namespace_may_reach_the_http_server_of_a_pod(kind, store):
    found = documents(kind, store, **OTHER)
    (pod,) = [
        one["spec"]["template"] for one in found if one["kind"] in ("Deployment", "StatefulSet")
    ]
    policy = of_kind(found, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == pod["metadata"]["labels"]
    assert policy["policyTypes"] == ["Ingress"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [
        {"protocol": "TCP", "port": pod["spec"]["containers"][0]["ports"][0]["name"]}
    ]
    assert rule["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    ]


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


def test_a_schema_refuses_what_kubernetes_would():
    (found, *_) = documents("deployment", "postgres")
    found["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    assert not schema("kubernetes").is_valid(found)
    (found,) = documents("compose", "postgres")
    found["services"]["agent"]["stop_grace_period"] = 65
    assert not schema("compose").is_valid(found)


@pytest.mark.parametrize(
    ("kind", "store"), [case for case in CASES if case[0] in ("deployment", "statefulset")]
)
@pytest.mark.parametrize("chosen", [{}, OTHER], ids=["default", "other"])
def test_numbers_of_a_pod_agree(kind, store, chosen):
    found, n = documents(kind, store, **chosen), numbers_for(store, **chosen)
    spec, container, env = worker_of(found)
    pre_stop = container["lifecycle"]["preStop"]["exec"]["command"]
    waits = int(pre_stop[pre_stop.index("--timeout") + 1])
    assert waits == n.pre_stop
    assert int(env["OUTLAST_GRACE"]) == n.grace
    assert spec["terminationGracePeriodSeconds"] == waits + n.grace + MARGIN
    assert int(env["OUTLAST_HEALTH_STALL"]) >= spec["terminationGracePeriodSeconds"], (
        "no probe ends a drain"
    )
    assert (
        container["ports"][0]["containerPort"]
        == n.port
        == int(env["OUTLAST_HTTP"].rpartition(":")[2])
    )
    for probe, path in (
        ("startupProbe", "/health"),
        ("readinessProbe", "/ready"),
        ("livenessProbe", "/health"),
    ):
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    assert container["command"] == ["outlast", "worker", n.module]
    Settings.load({}, {name: value for name, value in env.items() if name != "OUTLAST_STORE"})


@pytest.mark.parametrize("chosen", [{}, OTHER], ids=["default", "other"])
def test_a_pod_has_the_certificate_that_its_example_of_an_address_names(chosen):
    text = written("deployment", "postgres", **chosen)
    (command,) = [line for line in text.splitlines() if "kubectl create secret" in line]
    made = dict(re.findall(r"--from-(?:literal|file)=([\w.-]+)=('[^']*'|\S+)", command))
    options = parse_qs(urlsplit(made["store"].strip("'")).query)
    assert options["sslmode"] == ["verify-full"]
    (file,) = options["sslrootcert"]  # else libpq looks into the home of a user who has none
    spec, container, _ = worker_of(documents("deployment", "postgres", **chosen))
    (mount,) = [
        one for one in container["volumeMounts"] if one["mountPath"] == str(Path(file).parent)
    ]
    (volume,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    (item,) = volume["secret"]["items"]
    assert (item["path"], volume["secret"]["secretName"]) == (
        Path(file).name,
        chosen.get("name", "agents"),
    )
    assert item["key"] in made


@pytest.mark.parametrize(
    ("kind", "store"),
    [case for case in CASES if case[0] not in ("alerts", "dashboard", "dockerignore")],
)
@pytest.mark.parametrize("chosen", [{}, OTHER], ids=["default", "other"])
def test_the_doctor_finds_nothing_wrong(tmp_path, kind, store, chosen):
    path = tmp_path / Path(DOCUMENTS[kind].path).name
    path.write_text(written(kind, store, **chosen))
    workloads = tuple(read(path))
    assert any(one.is_worker for one in workloads)
    found = examine(Facts(load({"store": "memory:"}, {}), "", workloads=workloads), IN_MANIFESTS)
    assert [one for one in found if one.level is not Level.OK] == []
    checked = {one.check for one in found}
    assert checked >= {"settings", "signals"} | ({"grace"} if kind != "dockerfile" else set())


def test_a_roll_out_never_removes_more_than_it_adds():
    found = documents("deployment", "postgres")
    update = of_kind(found, "Deployment")["spec"]["strategy"]["rollingUpdate"]
    assert update == {"maxSurge": 1, "maxUnavailable": 0}
    assert of_kind(found, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    scaler = of_kind(found, "HorizontalPodAutoscaler")["spec"]
    metric = scaler["metrics"][0]["external"]
    assert metric["metric"]["name"] == "outlast_queue_load_max"
    assert metric["metric"]["name"] in rules_of("record")
    assert metric["target"] == {
        "type": "AverageValue",
        "averageValue": str(DeploymentConfig().concurrency),
    }
    assert "replicas" not in of_kind(found, "Deployment")["spec"], "two owners of one number"
    (down,) = scaler["behavior"]["scaleDown"]["policies"]
    assert down["value"] == 1
    assert down["periodSeconds"] == DeploymentConfig().period


def test_what_looks_like_a_number_is_still_the_name_of_an_image():
    for image in ("1:30", "0123", "1e3"):
        _, container, _ = worker_of(documents("deployment", "postgres", image=image))
        assert container["image"] == image
        (found,) = documents("compose", "postgres", image=image)
        assert found["services"]["agent"]["image"] == image


def test_a_long_grace_is_still_what_kubernetes_takes():
    found = documents("deployment", "postgres", grace=7_200)
    for document in found:
        schema("kubernetes").validate(document)
    (down,) = of_kind(found, "HorizontalPodAutoscaler")["spec"]["behavior"]["scaleDown"]["policies"]
    assert down["periodSeconds"] == 1_800


@pytest.mark.parametrize("lease", [5, 10, 30, 600])
def test_a_loop_that_stands_still_is_noticed_within_its_lease(lease):
    _, _, env = worker_of(documents("deployment", "postgres", lease=lease))
    settings = Settings.load(
        {}, {name: value for name, value in env.items() if name != "OUTLAST_STORE"}
    )
    assert settings.stall_max < settings.lease
    assert list(leases(settings)) == []


def test_no_secret_gets_into_the_image():
    (found,) = documents("compose", "postgres")
    kept_out = written("dockerignore", "postgres").splitlines()
    for secret in found["secrets"].values():
        assert secret["file"].startswith("./secrets/")
    assert {"secrets/", "**/.env", "**/*.db"} <= set(kept_out)
    assert "store" not in kept_out, "somebody's package may have that name"


def test_sqlite_has_one_pod_and_a_volume_of_its_own():
    found = documents("statefulset", "sqlite")
    state = of_kind(found, "StatefulSet")["spec"]
    assert state["replicas"] == 1
    spec, container, env = worker_of(found)
    (claim,) = state["volumeClaimTemplates"]
    assert {"name": claim["metadata"]["name"], "mountPath": "/data"} in container["volumeMounts"]
    assert env["OUTLAST_STORE"].startswith("sqlite:////data/")
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsUser"], (
        "it can write there"
    )


@pytest.mark.parametrize("store", DOCUMENTS["compose"].stores)
def test_the_compose_agent_is_given_longer_than_its_grace(store):
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
def test_the_unit_gives_longer_than_the_grace(store):
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


def test_alert_rules_are_valid_and_follow_the_objective():
    (found,) = documents("alerts", "postgres", **OTHER)
    schema("alerts").validate(found)
    by_name = {rule["alert"]: rule for rule in found["groups"][0]["rules"] if "alert" in rule}
    assert list(by_name) == list(rules_of("alert"))
    assert f"> {OTHER['objective']}" in by_name["OutlastRecoverySlow"]["expr"]


def annotations_of(text: str) -> dict[str, dict[str, str]]:
    (group,) = yaml.safe_load(text)["groups"]
    return {rule["alert"]: rule["annotations"] for rule in group["rules"] if "alert" in rule}


def test_each_alert_names_its_text_and_an_address_only_where_there_is_one():
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
def test_an_address_that_is_none_is_refused(base):
    with pytest.raises(SettingsError, match="--runbook-base"):
        DeploymentConfig(runbook_base=base)


def test_a_recovery_may_be_slower_than_any_objective_and_that_is_seen():
    """A quantile is never above the greatest bound of its histogram."""
    for objective in (60, 900, 3_600, 86_399):
        assert DeploymentConfig(objective=objective).objective < RECOVERY_SECONDS[-1]


def test_the_dashboard_has_its_places_and_its_queries():
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


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"grace": 0}, "--grace 0"),
        ({"grace": 1.5}, "whole number"),
        ({"store": "sqlite", "replicas": 2}, "2 stores"),
        ({"store": "mysql"}, "one of postgres, redis, sqlite"),
        ({"replicas": 9, "replicas_max": 3}, "--replicas-max 3"),
        ({"name": "Agents"}, "--name 'Agents'"),
        ({"name": "a: {b}"}, "--name"),
        ({"name": "on"}, "--name 'on'"),
        ({"name": "null"}, "--name 'null'"),
        ({"image": "a:"}, "--image 'a:'"),
        ({"image": "@a"}, "--image '@a'"),
        ({"lease": 4}, "--lease 4"),
        ({"module": "agents.py\n  evil: true"}, "--module"),
        ({"module": "--help"}, "--module"),
        ({"image": 'a"b'}, "--image"),
        ({"port": 80}, "--port 80"),
    ],
)
def test_numbers_that_cannot_be_are_refused(chosen, says):
    with pytest.raises(SettingsError, match=re.escape(says)):
        DeploymentConfig(**chosen)


def test_the_command_prints_what_the_folder_has(tmp_path, manifest):
    printed = manifest("--kind", "deployment")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out == (DEPLOY / "kubernetes/deployment.yaml").read_text()
    wrote = manifest("--write", tmp_path / "d", "--grace", 90, "--store", "redis")
    assert wrote.code == 0, wrote.err
    for document in DOCUMENTS.values():
        assert (tmp_path / "d" / document.path).stat().st_size > 0
    deployed = (tmp_path / "d/kubernetes/deployment.yaml").read_text()
    assert "on Redis" in deployed
    assert 'OUTLAST_GRACE, value: "90"' in deployed
    assert "sqlite:////" in (tmp_path / "d/kubernetes/statefulset.yaml").read_text(), (
        "the one that it can be"
    )
    said = manifest("--kind", "systemd", "--json", "--grace", 90).json
    assert said["numbers"]["grace"] == 90
    many = manifest("--kind", "deployment", "--json", "--store", "redis", "--replicas", 20).json
    assert {name: many["numbers"][name] for name in ("store", "replicas", "replicas_max")} == {
        "store": "redis",
        "replicas": 20,
        "replicas_max": 20,
    }
    assert "TimeoutStopSec=95" in said["documents"]["systemd"]
    assert (said["numbers"]["store"], said["numbers"]["replicas"]) == ("sqlite", 1)
    said = manifest("--kind", "deployment", "--store", "redis", "--json").json
    assert (said["numbers"]["store"], said["numbers"]["replicas"]) == ("redis", 3)


@pytest.mark.parametrize(("kind", "store"), [case for case in CASES if case[0] != "dashboard"])
@pytest.mark.parametrize("chosen", [{}, OTHER], ids=["default", "other"])
def test_the_command_in_a_document_prints_it_again(kind, store, chosen, capsys):
    text = written(kind, store, **chosen)
    (command,) = re.findall(r"Made by: outlast (.+)$", text, re.MULTILINE)
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert not ended.value.code
    assert capsys.readouterr().out == text


def test_the_secret_is_none_that_others_know():
    for kind, store in (("deployment", "postgres"), ("statefulset", "sqlite")):
        (line,) = re.findall(r"^# +(kubectl create secret .+)$", written(kind, store), re.MULTILINE)
        words = [subprocess.check_output(["sh", "-c", line.replace("kubectl", "echo")], text=True) for _ in "ab"]  # fmt: skip
        found = [re.findall(r"http-secret=([0-9a-f]{48})$", said.strip())[0] for said in words]
        assert found[0] != found[1]


def test_settings_of_this_machine_are_none_of_its_business(tmp_path):
    """Every command imports this one: what is wrong in a file of settings must not end them all before they can say so."""

    def outlast(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "outlast", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False, cwd=tmp_path
        )

    (tmp_path / ".env").write_text("OUTLAST_GRAZE=1\n")
    printed = outlast("manifest", "--kind", "systemd")
    assert (printed.returncode, printed.stderr) == (0, "")
    refused = outlast("runs")
    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
    assert "OUTLAST_GRACE" in refused.stderr


def test_the_command_says_what_is_wrong(tmp_path, manifest):
    for words, says in (
        ((), "--kind or --write"),
        (("--kind", "statefulset", "--store", "postgres"), "for --store sqlite"),
        (("--kind", "deployment", "--grace", "0"), "--grace 0"),
        (("--kind", "statefulset", "--replicas", "2"), "2 stores"),
        (("--kind", "deployment", "--replicas", "9", "--replicas-max", "3"), "--replicas-max 3"),
        (("--kind", "deployment", "--replicas-max", "-5"), "--replicas-max -5"),
    ):
        refused = manifest(*words, "--json")
        assert refused.code == 2, refused
        assert says in refused.json["error"]["message"]
    (tmp_path / "file").write_text("")
    refused = manifest("--write", tmp_path / "file")
    assert (refused.code, "cannot be written" in refused.err) == (1, True)
