"""Read compose files: one workload per service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outlast.tools.doctor.manifests.shell import command_of, split
from outlast.tools.doctor.manifests.values import (
    ELSEWHERE,
    Table,
    expand,
    get,
    table,
    tables,
    text,
    value_of,
    words,
)
from outlast.tools.doctor.manifests.workload import Workload, has_ours, period

PERIOD_SECONDS = 10.0
_NETWORK = ("nfs", "cifs", "smb", "9p", "fuse", "glusterfs", "ceph")


def workloads(path: str, document: Table) -> Iterator[Workload]:
    services = {text(name): table(one) for name, one in table(document, "services").items()}
    volumes = {text(name): _named_volume(one) for name, one in table(document, "volumes").items()}
    for name in services:
        service, elsewhere = _with_bases(services, name)
        env = _env(service)
        stop = service.get("stop_grace_period")
        stop = expand(stop) if isinstance(stop, str) else stop
        count = get(service, "deploy", "replicas") or service.get("scale")
        yield Workload(
            kind="compose",
            name=name,
            file=path,
            image=expand(text(service, "image")),
            command=command_of(
                _command(path, service.get("entrypoint")),
                _command(path, service.get("command")),
                ours=has_ours(env),
            ),
            env=env,
            env_elsewhere=elsewhere or bool(service.get("env_file")),
            period=period("stop_grace_period", stop, PERIOD_SECONDS, elsewhere=elsewhere),
            stop_signal=text(service, "stop_signal") or None,
            mounts=dict(_mounts(service, volumes)),
            replicas=count if type(count) is int else None,
            probed=bool(table(service, "healthcheck")),
        )


def _with_bases(services: dict[str, Table], name: str) -> tuple[Table, bool]:
    """Return a service merged with what it extends.

    The second value says whether a part of that is in another file.
    """
    service = services[name]
    seen = {name}
    while (base := service.get("extends")) is not None:
        other = text(base) or text(base, "service")
        if get(base, "file") is not None or other not in services or other in seen:
            return service, True
        seen.add(other)
        above = services[other]
        env = {**_env(above), **_env(service)}
        own = {key: value for key, value in service.items() if key != "extends"}
        service = {**above, **own, "environment": env}
    return service, False


def _env(service: Table) -> dict[str, str]:
    """Return the variables. One without a value comes from the environment of compose."""
    pairs = [one.partition("=") for one in words(service, "environment")]
    return {name: value_of(value) if mark else ELSEWHERE for name, mark, value in pairs} | {
        text(name): ELSEWHERE if value is None else value_of(text(value))
        for name, value in table(service, "environment").items()
    }


def _command(path: str, value: Any) -> tuple[str, ...]:
    """Split a command as compose does, without a shell. Only `sh -c` starts one."""
    return (
        split(path, expand(value)) if isinstance(value, str) else tuple(map(expand, words(value)))
    )


def _named_volume(volume: Any) -> str:
    kind = text(volume, "driver_opts", "type")
    return "nfs" if kind.startswith(_NETWORK) else "tmpfs" if kind == "tmpfs" else "volume"


def _mounts(service: Table, volumes: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the path and the kind of each mount."""
    for one in words(service, "tmpfs") or (text(service, "tmpfs"),):
        yield expand(one).partition(":")[0], "tmpfs"
    for volume in tables(service, "volumes"):
        is_tmpfs = text(volume, "type") == "tmpfs"
        kind = "tmpfs" if is_tmpfs else volumes.get(text(volume, "source"), "volume")
        is_read_only = volume.get("read_only") is True
        yield expand(text(volume, "target")), "readonly" if is_read_only else kind
    for one in filter(None, words(service, "volumes")):
        source, _, rest = expand(one).partition(":")
        target, _, mode = rest.partition(":")
        is_read_only = "ro" in mode.split(",")
        # An anonymous volume has only a target.
        yield target or source, "readonly" if is_read_only else volumes.get(source, "volume")
