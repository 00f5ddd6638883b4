"""Read Kubernetes documents that create pods: one workload per long-running container."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outlast.tools.doctor.manifests.shell import command_of, command_seconds
from outlast.tools.doctor.manifests.values import (
    ELSEWHERE,
    Table,
    get,
    items,
    seconds_of,
    table,
    tables,
    text,
    words,
)
from outlast.tools.doctor.manifests.workload import Workload, has_ours, period

PERIOD_SECONDS = 30.0
"""The default of terminationGracePeriodSeconds."""
AUTOSCALERS = {"HorizontalPodAutoscaler": "maxReplicas", "ScaledObject": "maxReplicaCount"}
SCALED_MAX = 100
"""KEDA's default of maxReplicaCount."""
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_VOLUMES = {
    **{name: name for name in ("emptyDir", "ephemeral")},
    **dict.fromkeys(("nfs", "cephfs", "glusterfs", "azureFile"), "nfs"),
    **dict.fromkeys(("configMap", "secret", "projected", "downwardAPI"), "readonly"),
}

ConfigMaps = Mapping[str, Table]


def workloads(documents: list[tuple[str, Table]]) -> Iterator[Workload]:
    """Yield the workloads of all documents, each with the path of its file.

    Autoscalers and config maps apply to workloads in other files too.
    """
    scaled: dict[tuple[str, str], Any] = {}
    maps: dict[str, dict[str, Table]] = {}
    for _, one in documents:
        if most := AUTOSCALERS.get(text(one, "kind")):
            target = get(one, "spec", "scaleTargetRef")
            key = text(target, "kind") or "Deployment", text(target, "name")
            scaled[key] = get(one, "spec", most) or SCALED_MAX
        if text(one, "kind") == "ConfigMap":
            of_space = maps.setdefault(text(one, "metadata", "namespace"), {})
            of_space[text(one, "metadata", "name")] = table(one, "data")
    for path, one in documents:
        replicas = scaled.get((text(one, "kind"), text(one, "metadata", "name")))
        yield from _of(path, one, replicas, maps.get(text(one, "metadata", "namespace"), {}))


def _of(path: str, document: Table, replicas: Any, maps: ConfigMaps) -> Iterator[Workload]:
    kind = text(document, "kind")
    name = text(document, "metadata", "name")
    spec = get(document, "spec")
    job = get(spec, "jobTemplate", "spec") if kind == "CronJob" else spec
    pod = spec if kind == "Pod" else get(job, "template", "spec")
    if replicas is None:
        replicas = get(spec, "replicas")
    strategy = get(spec, "strategy") or get(spec, "updateStrategy")
    node = get(pod, "nodeName") or get(pod, "nodeSelector", "kubernetes.io/hostname")
    volumes = {text(one, "name"): _volume(one) for one in tables(pod, "volumes")}
    for claim in tables(spec, "volumeClaimTemplates"):
        volumes[text(claim, "metadata", "name")] = "volume"
    sidecars = [
        one for one in tables(pod, "initContainers") if one.get("restartPolicy") == "Always"
    ]
    for container in [*tables(pod, "containers"), *sidecars]:
        env = _env(container, maps)
        sources = [text(one, "configMapRef", "name") for one in tables(container, "envFrom")]
        live = table(container, "livenessProbe")
        yield Workload(
            kind=kind,
            name=f"{name}/{text(container, 'name')}",
            file=path,
            image=text(container, "image"),
            command=command_of(
                words(container, "command"), words(container, "args"), ours=has_ours(env)
            ),
            env={name: text(value) for name, value in env.items()},
            env_unquoted=tuple(
                name for name, value in env.items() if not isinstance(value, str | None)
            ),
            env_elsewhere=not maps.keys() >= set(sources),
            period=period(
                "terminationGracePeriodSeconds",
                get(pod, "terminationGracePeriodSeconds"),
                PERIOD_SECONDS,
            ),
            pre_stop=_pre_stop(table(container, "lifecycle", "preStop")),
            replicas=replicas if type(replicas) is int and replicas >= 0 else None,
            pinned=bool(node),
            surge=text(strategy, "rollingUpdate", "maxSurge") or "25%",
            unavailable=text(strategy, "rollingUpdate", "maxUnavailable") or "25%",
            recreate=get(strategy, "type") == "Recreate",
            progress_deadline=seconds_of(get(spec, "progressDeadlineSeconds")),
            mounts={
                text(one, "mountPath"): "readonly"
                if one.get("readOnly") is True
                else volumes.get(text(one, "name"), "volume")
                for one in tables(container, "volumeMounts")
            },
            liveness=text(live, "httpGet", "path").partition("?")[0],
            liveness_patience=(seconds_of(live.get("periodSeconds")) or 10.0)
            * (seconds_of(live.get("failureThreshold")) or 3.0),
            probed=any(table(container, one) for one in PROBES),
            probe_ports=tuple(sorted(_probe_ports(container))),
            ignores_75=any(map(_ignores_75, tables(job, "podFailurePolicy", "rules"))),
        )


def _volume(volume: Table) -> str:
    """Return the kind of a volume. Claims, disks of the node and unknown kinds are lasting."""
    if get(volume, "emptyDir", "medium") == "Memory":
        return "tmpfs"
    return next((kind for name, kind in _VOLUMES.items() if name in volume), "volume")


def _env(container: Table, maps: ConfigMaps) -> Table:
    """Return a container's variables, including config maps in these files.

    Its own variables win.
    """
    found = {
        text(source, "prefix") + text(name): value
        for source in tables(container, "envFrom")
        for name, value in maps.get(text(source, "configMapRef", "name"), {}).items()
    }
    for one in tables(container, "env"):
        value = one.get("value")
        if one.get("valueFrom"):
            ref = get(one, "valueFrom", "configMapKeyRef")
            value = maps.get(text(ref, "name"), {}).get(text(ref, "key"), ELSEWHERE)
        # The value refers to another variable of the pod.
        elif "$(" in text(value):
            value = ELSEWHERE
        found[text(one, "name")] = value
    return found


def _pre_stop(stop: Table) -> float | None:
    if "exec" in stop and "sleep" not in stop:
        return command_seconds(words(stop, "exec", "command"))
    return seconds_of(get(stop, "sleep", "seconds")) if stop else 0.0


def _probe_ports(container: Table) -> Iterator[int]:
    named = {text(one, "name"): one.get("containerPort") for one in tables(container, "ports")}
    for probe in PROBES:
        request = get(container, probe, "httpGet")
        port = get(request, "port")
        number = named.get(port, port) if isinstance(port, str) else port
        if type(number) is int and get(request, "host") is None:
            yield number


def _ignores_75(rule: Table) -> bool:
    """Return whether a rule ignores exit code 75, or pods that were disrupted.

    Nothing else does: with OnFailure the kubelet restarts the container, and that counts too.
    """
    if rule.get("action") != "Ignore":
        return False
    codes = table(rule, "onExitCodes")
    is_listed = 75 in items(codes, "values")
    return any(
        one.get("type") == "DisruptionTarget" for one in tables(rule, "onPodConditions")
    ) or (bool(codes) and is_listed is (codes.get("operator", "In") == "In"))
