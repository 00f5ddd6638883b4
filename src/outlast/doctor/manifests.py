"""Manifests, read: Kubernetes YAML, compose files, systemd units, Dockerfiles. Each becomes workloads."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from outlast.doctor import compose, kubernetes
from outlast.doctor.dockerfiles import dockerfile
from outlast.doctor.units import unit
from outlast.doctor.workload import Workload
from outlast.doctor.yamls import documents
from outlast.errors import SettingsError

FILE_BYTES_MAX = 5_000_000
STDIN = Path("-")


def read(*paths: Path) -> list[Workload]:
    """All of them together: an autoscaler may be in another file than what it scales. SettingsError for a file that is none of these, or cannot be read."""
    found: list[Workload] = []
    in_yaml: list[tuple[str, dict[str, Any]]] = []
    for path in paths:
        text = _text(path)
        if path.suffix in (".service", ".conf"):
            found.append(unit(str(path), text, [_text(one) for one in _drop_ins(path)]))
        elif _is_dockerfile(path):
            found.append(dockerfile(str(path), text))
        else:
            name = "standard input" if path == STDIN else str(path)
            in_yaml += [(name, one) for one in documents(name, text)]
    return [*found, *_of_yaml(in_yaml)]


def _of_yaml(found: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[Workload]:
    found = list(found)
    scaled = kubernetes.scaled([document for _, document in found])
    maps = kubernetes.config_maps([document for _, document in found])
    for path, document in found:
        if "services" in document and "kind" not in document:
            yield from compose.workloads(path, document)
        elif "kind" in document:
            yield from kubernetes.workloads(path, document, scaled, maps)
        else:
            raise SettingsError(f"{path} has neither a `kind` (Kubernetes) nor `services` (compose).")


def _text(path: Path) -> str:
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise SettingsError(f"{path} has more than {FILE_BYTES_MAX:,} bytes: that is no manifest.")
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8 text.") from None


def _drop_ins(path: Path) -> list[Path]:
    """What `systemctl edit` has laid beside a unit, in the order in which systemd reads it."""
    return sorted(path.with_name(f"{path.name}.d").glob("*.conf")) if path.suffix == ".service" else []


def _is_dockerfile(path: Path) -> bool:
    name = path.name.lower()
    return name.startswith(("dockerfile", "containerfile")) or path.suffix.lower() == ".dockerfile"
