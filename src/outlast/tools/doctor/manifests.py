"""Read manifests into workloads: Kubernetes YAML, compose files, systemd units, Dockerfiles."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from outlast.errors import SettingsError
from outlast.tools.doctor import compose, kubernetes
from outlast.tools.doctor.dockerfiles import dockerfile
from outlast.tools.doctor.finding import Finding, named, note, ok
from outlast.tools.doctor.safe_yaml import documents
from outlast.tools.doctor.systemd import unit
from outlast.tools.doctor.workload import Workload

FILE_BYTES_MAX = 5_000_000
STDIN = Path("-")
YAML = (".yaml", ".yml")
NEITHER = "has neither a `kind` (Kubernetes) nor `services` (compose)"


def expanded(paths: Iterable[Path]) -> tuple[list[Path], list[Finding]]:
    """Expand folders to the manifests in them, and return findings about the folders.

    Raise SettingsError for a folder without manifests.
    """
    files: list[Path] = []
    said: list[Finding] = []
    for path in paths:
        if path.is_dir():
            taken, found = _in_folder(path)
            files += taken
            said += found
        else:
            files.append(path)
    return files, named("files", said)


def _in_folder(folder: Path) -> tuple[list[Path], list[Finding]]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise SettingsError(f"{folder} cannot be read: {error.strerror or error}.") from None
    named = [path for path in inside if path.is_file() and _is_called_so(path)]
    other = [path for path in named if path.suffix in YAML and _is_anything_else(path)]
    taken = [path for path in named if path not in other]
    if not taken:
        raise SettingsError(
            f"{folder} has no manifest: no .yaml, .yml, .service or Dockerfile that is one."
        )
    folders = [
        path.name for path in inside if path.is_dir() and not path.name.endswith(".service.d")
    ]
    more = f" Its subfolders ({', '.join(folders)}) are not read." if folders else ""
    left_out = [
        note(f"{path.name} is left out: it {NEITHER}.", where=str(folder)) for path in other
    ]
    return taken, [
        *left_out,
        ok(f"read: {', '.join(path.name for path in taken)}.{more}", str(folder)),
    ]


def _is_called_so(path: Path) -> bool:
    return path.suffix in (*YAML, ".service") or _is_dockerfile(path)


def _is_anything_else(path: Path) -> bool:
    """Return whether a YAML file is no manifest, such as chart values, rules or a pipeline.

    In a folder such files lie beside manifests.
    """
    return not any("kind" in one or "services" in one for one in documents(str(path), _text(path)))


def read(*paths: Path) -> list[Workload]:
    """Read all files together: an autoscaler may be in another file than its target.

    Raise SettingsError for a file that is no manifest or cannot be read.
    """
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
            raise SettingsError(f"{path} {NEITHER}.")


def _text(path: Path) -> str:
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise SettingsError(
                f"{path} has more than {FILE_BYTES_MAX:,} bytes, too many for a manifest."
            )
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8 text.") from None


def _drop_ins(path: Path) -> list[Path]:
    """Return the drop-ins that `systemctl edit` put beside a unit, in systemd's reading order."""
    return (
        sorted(path.with_name(f"{path.name}.d").glob("*.conf")) if path.suffix == ".service" else []
    )


def _is_dockerfile(path: Path) -> bool:
    name = path.name.lower()
    return name.startswith(("dockerfile", "containerfile")) or path.suffix.lower() == ".dockerfile"
