"""Manifests, read: Kubernetes YAML, compose files, systemd units, Dockerfiles. Each becomes workloads."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outlast.doctor.workload import ELSEWHERE, SHELLS, Workload, command_seconds, seconds_of
from outlast.errors import SettingsError

PODS = {"Deployment": 30.0, "StatefulSet": 30.0, "DaemonSet": 30.0, "ReplicaSet": 30.0, "Job": 30.0, "CronJob": 30.0, "Pod": 30.0}  # fmt: skip
"""Kinds with pods, and what terminationGracePeriodSeconds is where nothing is said."""
COMPOSE_SECONDS, SYSTEMD_SECONDS = 10.0, 90.0
FILE_BYTES_MAX = 5_000_000


def read(path: Path) -> list[Workload]:
    """SettingsError for a file that is none of these, or cannot be read."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SettingsError(f"{path} has more than {FILE_BYTES_MAX:,} bytes: that is no manifest.")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8 text.") from None
    if path.suffix in (".service", ".conf"):
        return [_unit(path, text)]
    if path.name.lower().startswith(("dockerfile", "containerfile")) or path.suffix.lower() == ".dockerfile":
        return [_dockerfile(path, text)]
    return list(_yaml(path, text))


# -- YAML


def _yaml(path: Path, text: str) -> Iterator[Workload]:
    try:
        import yaml
    except ImportError:
        raise SettingsError("--manifest reads YAML with PyYAML: pip install 'outlast[manifest]'.") from None
    try:
        documents = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise SettingsError(f"{path}{line}: this is no YAML ({getattr(error, 'problem', None) or 'it cannot be read'}).") from None  # fmt: skip
    if not documents or not all(isinstance(one, dict) for one in documents):
        raise SettingsError(f"{path} has no manifest in it: Kubernetes YAML, a compose file, a .service unit or a Dockerfile is read.")  # fmt: skip
    scaled = _scaled(documents)
    for document in documents:
        if "services" in document and "kind" not in document:
            yield from _compose(path, document)
        elif "kind" in document:
            items = document.get("items") if document["kind"] == "List" else [document]
            for one in items or ():
                yield from _kubernetes(path, _table(one), scaled)
        else:
            raise SettingsError(f"{path} has neither a `kind` (Kubernetes) nor `services` (compose).")


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _words(value: Any) -> tuple[str, ...]:
    return tuple(str(word) for word in _list(value))


def _scaled(documents: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """How many pods an autoscaler may make of what is in the same file, by kind and name."""
    found: dict[tuple[str, str], int] = {}
    for spec in (
        _table(one.get("spec")) for one in documents if one.get("kind") == "HorizontalPodAutoscaler"
    ):
        target, most = _table(spec.get("scaleTargetRef")), spec.get("maxReplicas")
        if isinstance(most, int):
            found[str(target.get("kind")), str(target.get("name"))] = most
    return found


def _kubernetes(
    path: Path, document: dict[str, Any], scaled: Mapping[tuple[str, str], int]
) -> Iterator[Workload]:
    kind = str(document.get("kind"))
    if kind not in PODS:
        return
    spec = _table(document.get("spec"))
    job = spec
    if kind == "CronJob":
        job = _table(_table(spec.get("jobTemplate")).get("spec"))
    pod = spec if kind == "Pod" else _table(_table(job.get("template")).get("spec"))
    strategy = _table(spec.get("strategy") or spec.get("updateStrategy"))
    update = _table(strategy.get("rollingUpdate"))
    replicas = spec.get("replicas", 1 if kind in ("Deployment", "StatefulSet") else None)
    volumes = {str(one.get("name")): _volume(one) for one in map(_table, _list(pod.get("volumes")))}
    for claim in map(_table, _list(spec.get("volumeClaimTemplates"))):
        volumes[str(_table(claim.get("metadata")).get("name"))] = "claim"
    name = str(_table(document.get("metadata")).get("name", ""))
    replicas = scaled.get((kind, name), replicas)
    for container in map(_table, _list(pod.get("containers"))):
        env, elsewhere = _env(container)
        stop = _table(_table(container.get("lifecycle")).get("preStop"))
        command = (*_words(container.get("command")), *_words(container.get("args")))
        live, patience = _probe(container.get("livenessProbe"))
        yield Workload(
            kind=kind, name=f"{name}/{container.get('name', '')}", file=str(path), image=str(container.get("image", "")), env=env, env_elsewhere=elsewhere,
            **_command(command), period=seconds_of(pod.get("terminationGracePeriodSeconds")), period_default=PODS[kind],
            period_name="terminationGracePeriodSeconds", pre_stop=_pre_stop(stop), replicas=replicas if isinstance(replicas, int) else None,
            surge=_part(update.get("maxSurge"), "25%"), unavailable=_part(update.get("maxUnavailable"), "25%"),
            recreate=strategy.get("type") == "Recreate", progress_deadline=seconds_of(spec.get("progressDeadlineSeconds")),
            mounts={str(one.get("mountPath")): volumes.get(str(one.get("name")), "volume") for one in map(_table, _list(container.get("volumeMounts")))},
            liveness=live, liveness_patience=patience, readiness=_probe(container.get("readinessProbe"))[0],
            restart=pod.get("restartPolicy"), knows_75=kind not in ("Job", "CronJob") or _knows_75(job, pod),
        )  # fmt: skip


def _volume(volume: dict[str, Any]) -> str:
    for name, kind in (
        ("emptyDir", "emptyDir"),
        ("persistentVolumeClaim", "claim"),
        ("hostPath", "host"),
        ("nfs", "nfs"),
    ):
        if name in volume:
            return "tmpfs" if _table(volume[name]).get("medium") == "Memory" else kind
    return "volume"


def _env(container: dict[str, Any]) -> tuple[dict[str, str], bool]:
    env: dict[str, str] = {}
    for one in map(_table, _list(container.get("env"))):
        env[str(one.get("name"))] = ELSEWHERE if "valueFrom" in one else str(one.get("value", ""))
    return env, bool(_list(container.get("envFrom")))


def _pre_stop(stop: dict[str, Any]) -> float | None:
    if not stop:
        return 0.0
    if "sleep" in stop:
        return seconds_of(_table(stop["sleep"]).get("seconds"))
    if "exec" in stop:
        return command_seconds(_words(_table(stop["exec"]).get("command")))
    return None


def _part(value: Any, default: str) -> str:
    return default if value is None else str(value)


def _probe(probe: Any) -> tuple[str | None, float | None]:
    said = _table(probe)
    path = _table(said.get("httpGet")).get("path")
    patience = float(said.get("periodSeconds", 10)) * float(said.get("failureThreshold", 3)) if said else None
    return (None if path is None else str(path)), patience


def _knows_75(job: dict[str, Any], pod: dict[str, Any]) -> bool:
    if pod.get("restartPolicy") == "OnFailure":
        return True
    for rule in map(_table, _list(_table(job.get("podFailurePolicy")).get("rules"))):
        if rule.get("action") == "Ignore" and 75 in _list(_table(rule.get("onExitCodes")).get("values")):
            return True
    return False


def _compose(path: Path, document: dict[str, Any]) -> Iterator[Workload]:
    for name, service in _table(document.get("services")).items():
        said = _table(service)
        env = said.get("environment")
        if isinstance(env, list):
            pairs = (str(one).partition("=") for one in env)
            env = {key: value if mark else ELSEWHERE for key, mark, value in pairs}
        mounts = {"tmpfs": "tmpfs"} if isinstance(said.get("tmpfs"), str) else {}
        for one in _list(said.get("tmpfs")):
            mounts[str(one)] = "tmpfs"
        for one in _list(said.get("volumes")):
            source, target = _compose_volume(one)
            mounts[target] = source
        deploy = _table(said.get("deploy"))
        entry, command = said.get("entrypoint"), said.get("command")
        shell = next((one for one in (entry, command) if isinstance(one, str)), None)
        words = (*_words(entry), *_words(command))
        yield Workload(
            kind="compose", name=str(name), file=str(path), image=str(said.get("image", "")), **({"shell": None, "command": None} if not words and shell is None else _line(shell, words)),
            env={key: ELSEWHERE if value is None else str(value) for key, value in _table(env).items()}, env_elsewhere="env_file" in said,
            period=seconds_of(said.get("stop_grace_period")), period_default=COMPOSE_SECONDS, period_name="stop_grace_period",
            stop_signal=said.get("stop_signal"), mounts=mounts,
            replicas=deploy["replicas"] if isinstance(deploy.get("replicas"), int) else None,
        )  # fmt: skip


def _line(shell: str | None, words: tuple[str, ...]) -> dict[str, Any]:
    """Compose splits a command that is a text by itself, without a shell; only `sh -c` is one."""
    if shell is not None:
        try:
            words = (*tuple(shlex.split(shell)), *words)
        except ValueError:
            return {"command": None, "shell": shell}
    return _command(words)


def _compose_volume(volume: Any) -> tuple[str, str]:
    if isinstance(volume, dict):
        kind = str(volume.get("type", "volume"))
        return ({"bind": "host"}.get(kind, kind), str(volume.get("target", "")))
    source, _, rest = str(volume).partition(":")
    return ("host" if source.startswith((".", "/", "~")) else "volume", rest.partition(":")[0] or source)


def _command(words: tuple[str, ...]) -> dict[str, Any]:
    """What a shell is given, if one is in between and stays there."""
    if (
        words
        and words[0].rpartition("/")[2] in SHELLS
        and any(word.startswith("-") and "c" in word for word in words[1:2])
    ):
        return {"command": words, "shell": " ".join(words[2:3])}
    return {"command": words or None, "shell": None}


# -- systemd and Docker


def _unit(path: Path, text: str) -> Workload:
    said: dict[str, list[str]] = {}
    section = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            section = stripped
        elif "=" in stripped and not stripped.startswith(("#", ";")):
            key, _, value = stripped.partition("=")
            said.setdefault(f"{section}{key.strip()}", []).append(value.strip())
    if not any(key.startswith("[Service]") for key in said):
        raise SettingsError(f"{path} has no [Service]: it is no unit of a service.")

    def last(key: str) -> str | None:
        found = said.get(f"[Service]{key}")
        return found[-1] if found else None

    env: dict[str, str] = {}
    for value in said.get("[Service]Environment", ()):
        env |= {
            key: text for key, mark, text in (part.partition("=") for part in _split(path, value)) if mark
        }
    start = (last("ExecStart") or "").lstrip("@-:+!")
    return Workload(
        kind="systemd", name=path.stem, file=str(path), **_command(tuple(_split(path, start))), env=env,
        env_elsewhere="[Service]EnvironmentFile" in said, period=seconds_of(last("TimeoutStopSec") or last("TimeoutSec")),
        period_default=SYSTEMD_SECONDS, period_name="TimeoutStopSec", stop_signal=last("KillSignal"),
        kill_mode=last("KillMode") or "control-group", restart=last("Restart") or "no",
    )  # fmt: skip


def _split(path: Path, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"{path}: {text[:80]!r} cannot be read ({error}).") from None


def _dockerfile(path: Path, text: str) -> Workload:
    entry: tuple[str, ...] | str | None = None
    command: tuple[str, ...] | str | None = None
    env: dict[str, str] = {}
    stop = None
    lines = re.sub(r"\\\s*\n(?:\s*#.*\n)*", " ", text)
    for line in lines.splitlines():
        word, _, rest = line.strip().partition(" ")
        word, rest = word.upper(), rest.strip()
        if word == "FROM":
            entry = command = stop = None
            env = {}
        elif word == "ENTRYPOINT":
            entry, command = _form(rest), None
        elif word == "CMD":
            command = _form(rest)
        elif word == "STOPSIGNAL":
            stop = rest
        elif word == "ENV":
            env |= _docker_env(path, rest)
    shell = next((one for one in (entry, command) if isinstance(one, str)), None)
    words = (*(entry if isinstance(entry, tuple) else ()), *(command if isinstance(command, tuple) else ()))
    facts = {"command": None, "shell": shell} if shell is not None else _command(words)
    return Workload(kind="Dockerfile", name="", file=str(path), env=env, stop_signal=stop, **facts)


def _form(rest: str) -> tuple[str, ...] | str:
    """Exec form is a JSON list; anything else is given to a shell."""
    try:
        found = json.loads(rest)
    except ValueError:
        return rest
    return tuple(map(str, found)) if isinstance(found, list) else rest


def _docker_env(path: Path, rest: str) -> Mapping[str, str]:
    parts = _split(path, rest)
    if parts and "=" not in parts[0]:
        return {parts[0]: " ".join(parts[1:])}
    return {key: value for key, mark, value in (part.partition("=") for part in parts) if mark}
