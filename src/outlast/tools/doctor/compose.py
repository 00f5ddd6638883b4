"""Read compose files: one workload per service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outlast.tools.doctor.commands import called
from outlast.tools.doctor.safe_yaml import listed, table, text_of
from outlast.tools.doctor.systemd import split
from outlast.tools.doctor.variables import filled, value_of
from outlast.tools.doctor.workload import ELSEWHERE, Workload, has_ours, seconds_of

PERIOD_SECONDS = 10.0
_NETWORK = ("nfs", "cifs", "smb", "9p", "fuse", "glusterfs", "ceph")


def workloads(path: str, document: dict[str, Any]) -> Iterator[Workload]:
    services = {
        text_of(name): table(said) for name, said in table(document.get("services")).items()
    }
    volumes = {
        text_of(name): _named(table(said)) for name, said in table(document.get("volumes")).items()
    }
    for name in services:
        said, elsewhere = _whole(services, name)
        period = said.get("stop_grace_period")
        seconds = seconds_of(filled(period) if isinstance(period, str) else period)
        env = _env(said.get("environment"))
        count = table(said.get("deploy")).get("replicas") or said.get("scale")
        yield Workload(
            kind="compose",
            name=name,
            file=path,
            image=filled(text_of(said.get("image"))),
            env=env,
            env_elsewhere=elsewhere or bool(said.get("env_file")),
            **called(
                _words(path, said.get("entrypoint")),
                _words(path, said.get("command")),
                ours=has_ours(env),
            ),
            period=seconds,
            period_default=PERIOD_SECONDS,
            period_elsewhere=seconds is None and (elsewhere or period is not None),
            period_name="stop_grace_period",
            stop_signal=text_of(said.get("stop_signal")) or None,
            mounts=_mounts(said, volumes),
            replicas=count if type(count) is int else None,
            probed=bool(table(said.get("healthcheck"))),
        )


def _whole(services: dict[str, dict[str, Any]], name: str) -> tuple[dict[str, Any], bool]:
    """Return a service merged with what it extends.

    The second value says whether a part of that is in another file.
    """
    said = services[name]
    seen = {name}
    while (base := said.get("extends")) is not None:
        other = text_of(base) or text_of(table(base).get("service"))
        if table(base).get("file") is not None or other not in services or other in seen:
            return said, True
        seen.add(other)
        above = services[other]
        env = {**_env(above.get("environment")), **_env(said.get("environment"))}
        said = {
            **above,
            **{key: value for key, value in said.items() if key != "extends"},
            "environment": env,
        }
    return said, False


def _env(env: Any) -> dict[str, str]:
    if isinstance(env, list):
        pairs = (text_of(one).partition("=") for one in env)
        return {key: value_of(value) if mark else ELSEWHERE for key, mark, value in pairs}
    return {
        text_of(key): ELSEWHERE if value is None else value_of(text_of(value))
        for key, value in table(env).items()
    }


def _words(path: str, value: Any) -> tuple[str, ...]:
    """Split a command as compose does.

    Compose splits a command string itself, without a shell. Only `sh -c` starts one.
    """
    if isinstance(value, str):
        return tuple(split(path, filled(value)))
    return tuple(filled(text_of(word)) for word in listed(value))


def _named(volume: dict[str, Any]) -> str:
    kind = text_of(table(volume.get("driver_opts")).get("type"))
    return "nfs" if kind.startswith(_NETWORK) else "tmpfs" if kind == "tmpfs" else "volume"


def _mounts(said: dict[str, Any], volumes: dict[str, str]) -> dict[str, str]:
    passing = said.get("tmpfs")
    found = {
        filled(text_of(one)).partition(":")[0]: "tmpfs"
        for one in (listed(passing) if isinstance(passing, list) else [passing] if passing else [])
    }
    for one in listed(said.get("volumes")):
        kind, target = _volume(one, volumes)
        found[target] = kind
    return found


def _volume(volume: Any, volumes: dict[str, str]) -> tuple[str, str]:
    if isinstance(volume, dict):
        kind = text_of(volume.get("type")) or "volume"
        kind = {"bind": "host", "volume": volumes.get(text_of(volume.get("source")), "volume")}.get(
            kind, kind
        )
        return (
            "readonly" if volume.get("read_only") is True else kind,
            filled(text_of(volume.get("target"))),
        )
    source, _, rest = filled(text_of(volume)).partition(":")
    target, _, mode = rest.partition(":")
    if not target:
        # An anonymous volume.
        return "volume", source
    kind = "host" if source.startswith((".", "/", "~")) else volumes.get(source, "volume")
    return ("readonly" if "ro" in mode.split(",") else kind), target
