"""Read Kubernetes documents that create pods: one workload per long-running container."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outlast.tools.doctor.commands import called, command_seconds
from outlast.tools.doctor.safe_yaml import listed, table, text_of, words_of
from outlast.tools.doctor.workload import ELSEWHERE, Workload, has_ours, seconds_of

PERIOD_SECONDS = 30.0
"""The default of terminationGracePeriodSeconds."""
SCALED_MAX = 100
"""KEDA's default of maxReplicaCount."""

_VOLUMES = {
    "emptyDir": "emptyDir",
    "ephemeral": "ephemeral",
    "persistentVolumeClaim": "claim",
    "hostPath": "host",
    "nfs": "nfs",
    "cephfs": "nfs",
    "glusterfs": "nfs",
    "azureFile": "nfs",
    "configMap": "readonly",
    "secret": "readonly",
    "projected": "readonly",
    "downwardAPI": "readonly",
}

Scaled = Mapping[tuple[str, str], int]
ConfigMaps = Mapping[tuple[str, str], dict[str, Any]]


def scaled(documents: list[dict[str, Any]]) -> Scaled:
    """Return how many pods an autoscaler may create, by kind and name."""
    found: dict[tuple[str, str], int] = {}
    for one in documents:
        spec = table(one.get("spec"))
        target = table(spec.get("scaleTargetRef"))
        most: Any = None
        if one.get("kind") == "HorizontalPodAutoscaler":
            most = spec.get("maxReplicas")
        elif one.get("kind") == "ScaledObject":
            most = spec.get("maxReplicaCount") or SCALED_MAX
        if type(most) is int:
            found[text_of(target.get("kind")) or "Deployment", text_of(target.get("name"))] = most
    return found


def config_maps(documents: list[dict[str, Any]]) -> ConfigMaps:
    """Return the data of config maps, by namespace and name."""
    return {
        _named(one): table(one.get("data")) for one in documents if one.get("kind") == "ConfigMap"
    }


def _named(document: dict[str, Any]) -> tuple[str, str]:
    said = table(document.get("metadata"))
    return text_of(said.get("namespace")), text_of(said.get("name"))


def workloads(
    path: str, document: dict[str, Any], scaled: Scaled, maps: ConfigMaps
) -> Iterator[Workload]:
    kind = text_of(document.get("kind"))
    spec = table(document.get("spec"))
    job = table(table(spec.get("jobTemplate")).get("spec")) if kind == "CronJob" else spec
    pod = spec if kind == "Pod" else table(table(job.get("template")).get("spec"))
    namespace, name = _named(document)
    replicas = scaled.get((kind, name), spec.get("replicas"))
    if replicas is None and kind in ("Deployment", "StatefulSet"):
        replicas = 1
    strategy = table(spec.get("strategy") or spec.get("updateStrategy"))
    update = table(strategy.get("rollingUpdate"))
    period = pod.get("terminationGracePeriodSeconds")
    volumes = {
        text_of(one.get("name")): _volume(one) for one in map(table, listed(pod.get("volumes")))
    }
    for claim in map(table, listed(spec.get("volumeClaimTemplates"))):
        volumes[text_of(table(claim.get("metadata")).get("name"))] = "claim"
    for container in _staying(pod):
        said = _env(container, {key: data for (at, key), data in maps.items() if at == namespace})
        live, patience = _probe(container.get("livenessProbe"))
        yield Workload(
            kind=kind,
            name=f"{name}/{text_of(container.get('name'))}",
            file=path,
            image=text_of(container.get("image")),
            **said,
            **called(
                words_of(container.get("command")),
                words_of(container.get("args")),
                ours=has_ours(said["env"]),
            ),
            period=seconds_of(period),
            period_default=PERIOD_SECONDS,
            period_elsewhere=period is not None and seconds_of(period) is None,
            period_name="terminationGracePeriodSeconds",
            pre_stop=_pre_stop(table(table(container.get("lifecycle")).get("preStop"))),
            replicas=replicas if type(replicas) is int and replicas >= 0 else None,
            pinned=bool(
                pod.get("nodeName") or table(pod.get("nodeSelector")).get("kubernetes.io/hostname")
            ),
            surge=text_of(update.get("maxSurge")) or "25%",
            unavailable=text_of(update.get("maxUnavailable")) or "25%",
            recreate=strategy.get("type") == "Recreate",
            progress_deadline=seconds_of(spec.get("progressDeadlineSeconds")),
            mounts=_mounts(container, volumes),
            liveness=live,
            liveness_patience=patience,
            readiness=_probe(container.get("readinessProbe"))[0],
            probed=any(
                table(container.get(f"{one}Probe")) for one in ("liveness", "readiness", "startup")
            ),
            probe_ports=_probe_ports(container),
            restart=text_of(pod.get("restartPolicy")) or None,
            knows_75=kind not in ("Job", "CronJob") or _knows_75(job),
        )


def _staying(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the containers and the sidecars: init containers that keep running."""
    yield from map(table, listed(pod.get("containers")))
    for one in map(table, listed(pod.get("initContainers"))):
        if one.get("restartPolicy") == "Always":
            yield one


def _volume(volume: dict[str, Any]) -> str:
    for name, kind in _VOLUMES.items():
        if name in volume:
            return "tmpfs" if table(volume[name]).get("medium") == "Memory" else kind
    return "volume"


def _mounts(container: dict[str, Any], volumes: Mapping[str, str]) -> dict[str, str]:
    return {
        text_of(one.get("mountPath")): "readonly"
        if one.get("readOnly") is True
        else volumes.get(text_of(one.get("name")), "volume")
        for one in map(table, listed(container.get("volumeMounts")))
    }


def _env(container: dict[str, Any], maps: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a container's variables, including config maps in these files.

    Its own variables win.
    """
    found, elsewhere = _env_from(container, maps)
    for one in map(table, listed(container.get("env"))):
        name = text_of(one.get("name"))
        value = one.get("value")
        if one.get("valueFrom"):
            value = _value_from(table(one["valueFrom"]), maps)
        # The value refers to another variable of the pod.
        elif "$(" in text_of(value):
            value = ELSEWHERE
        found[name] = value
    unquoted = tuple(
        name for name, value in found.items() if not (value is None or isinstance(value, str))
    )
    env = {name: text_of(value) for name, value in found.items()}
    return {"env": env, "env_unquoted": unquoted, "env_elsewhere": elsewhere}


def _env_from(
    container: dict[str, Any], maps: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Any], bool]:
    """Return the variables of whole config maps.

    The second value says whether there are secrets, or config maps that are not in these files.
    """
    found: dict[str, Any] = {}
    elsewhere = False
    for one in map(table, listed(container.get("envFrom"))):
        data = maps.get(text_of(table(one.get("configMapRef")).get("name")))
        elsewhere = elsewhere or data is None
        found |= {
            text_of(one.get("prefix")) + text_of(name): value
            for name, value in (data or {}).items()
        }
    return found, elsewhere


def _value_from(source: dict[str, Any], maps: Mapping[str, dict[str, Any]]) -> Any:
    ref = table(source.get("configMapKeyRef"))
    return maps.get(text_of(ref.get("name")), {}).get(text_of(ref.get("key")), ELSEWHERE)


def _pre_stop(stop: dict[str, Any]) -> float | None:
    if not stop:
        return 0.0
    if "sleep" in stop:
        return seconds_of(table(stop["sleep"]).get("seconds"))
    if "exec" in stop:
        return command_seconds(words_of(table(stop["exec"]).get("command")))
    return None


def _probe(probe: Any) -> tuple[str | None, float | None]:
    said = table(probe)
    path = table(said.get("httpGet")).get("path")
    every = seconds_of(said.get("periodSeconds"))
    times = seconds_of(said.get("failureThreshold"))
    patience = (
        (10.0 if every is None else every) * (3.0 if times is None else times) if said else None
    )
    return (None if path is None else text_of(path).partition("?")[0]), patience


def _probe_ports(container: dict[str, Any]) -> tuple[int, ...]:
    ports = {
        text_of(one.get("name")): one.get("containerPort")
        for one in map(table, listed(container.get("ports")))
    }
    found = set()
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        get = table(table(container.get(probe)).get("httpGet"))
        port = get.get("port")
        number = ports.get(port, port) if isinstance(port, str) else port
        if type(number) is int and get.get("host") is None:
            found.add(number)
    return tuple(sorted(found))


def _knows_75(job: dict[str, Any]) -> bool:
    """Return whether a failure policy ignores exit code 75, or pods that were disrupted.

    Nothing else does: with OnFailure the kubelet restarts the container, and that counts too.
    """
    for rule in map(table, listed(table(job.get("podFailurePolicy")).get("rules"))):
        codes = table(rule.get("onExitCodes"))
        if rule.get("action") != "Ignore":
            continue
        if any(
            one.get("type") == "DisruptionTarget"
            for one in map(table, listed(rule.get("onPodConditions")))
        ):
            return True
        if not codes:
            continue
        named = 75 in listed(codes.get("values"))
        if named is (codes.get("operator", "In") == "In"):
            return True
    return False
