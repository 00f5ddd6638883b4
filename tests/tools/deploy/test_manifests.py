"""The generated documents are valid, agree with each other and are what `deploy/` contains."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from manifest_tools import (
    CASES,
    DEPLOY,
    OTHER,
    config_for,
    documents,
    of_kind,
    schema,
    worker_of,
    written,
)

from outlast.settings import Settings
from outlast.settings.load import load
from outlast.tools.deploy.config import MARGIN, DeploymentConfig
from outlast.tools.deploy.documents import DOCUMENTS
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Level
from outlast.tools.doctor.grace import leases
from outlast.tools.doctor.manifests.files import read
from outlast.tools.doctor.registry import IN_MANIFESTS, examine
from support.alert_rules import rules_of


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_the_deploy_folder_is_up_to_date(kind):
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


def test_the_schemas_refuse_invalid_documents():
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
    found, n = documents(kind, store, **chosen), config_for(store, **chosen)
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
def test_a_pod_mounts_the_certificate_of_its_example_address(chosen):
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


def test_a_rollout_never_removes_more_pods_than_it_adds():
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


def test_an_image_name_that_looks_like_a_number_stays_a_string():
    for image in ("1:30", "0123", "1e3"):
        _, container, _ = worker_of(documents("deployment", "postgres", image=image))
        assert container["image"] == image
        (found,) = documents("compose", "postgres", image=image)
        assert found["services"]["agent"]["image"] == image


def test_a_long_grace_is_valid_for_kubernetes():
    found = documents("deployment", "postgres", grace=7_200)
    for document in found:
        schema("kubernetes").validate(document)
    (down,) = of_kind(found, "HorizontalPodAutoscaler")["spec"]["behavior"]["scaleDown"]["policies"]
    assert down["periodSeconds"] == 1_800


@pytest.mark.parametrize("lease", [5, 10, 30, 600])
def test_a_stalled_loop_is_detected_within_its_lease(lease):
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
    assert "store" not in kept_out, "a user's package may have that name"


def test_sqlite_has_one_pod_and_one_volume():
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
