"""Read manifests into workloads: Kubernetes YAML, compose files, systemd units, Dockerfiles."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from outlast.errors import SettingsError
from outlast.tools.doctor.finding import Finding, note, ok
from outlast.tools.doctor.manifests import compose, kubernetes
from outlast.tools.doctor.manifests.dockerfile import dockerfile
from outlast.tools.doctor.manifests.systemd import unit
from outlast.tools.doctor.manifests.values import Table, tables
from outlast.tools.doctor.manifests.workload import Workload

FILE_BYTES_MAX = 5_000_000
STDIN = Path("-")
YAML = (".yaml", ".yml")
NEITHER = "has neither a `kind` (Kubernetes) nor `services` (compose)"


def expanded(paths: Iterable[Path]) -> tuple[list[Path], list[Finding]]:
    """Expand folders to the manifests in them, and return findings about the folders.

    Raise SettingsError for a folder without manifests.
    """
    files: list[Path] = []
    findings: list[Finding] = []
    for path in paths:
        taken, found = _in_folder(path) if path.is_dir() else ([path], [])
        files += taken
        findings += found
    return files, findings


def _in_folder(folder: Path) -> tuple[list[Path], list[Finding]]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise SettingsError(f"{folder} cannot be read: {error.strerror or error}.") from None
    named = [path for path in inside if path.is_file() and _is_one(path)]
    # Chart values, rules or a pipeline may be beside manifests.
    other = [path for path in named if path.suffix in YAML and not _has_one(path)]
    taken = [path for path in named if path not in other]
    if not taken:
        raise SettingsError(
            f"{folder} has no manifest: no .yaml, .yml, .service or Dockerfile that is one."
        )
    where = str(folder)
    folders = [one.name for one in inside if one.is_dir() and not one.name.endswith(".service.d")]
    more = f" Its subfolders ({', '.join(folders)}) are not read." if folders else ""
    return taken, [
        *(note(f"{path.name} is left out: it {NEITHER}.", where=where) for path in other),
        ok(f"read: {', '.join(path.name for path in taken)}.{more}", where),
    ]


def _is_one(path: Path) -> bool:
    return path.suffix in (*YAML, ".service") or _is_dockerfile(path)


def _has_one(path: Path) -> bool:
    found = _documents(str(path), _text(path))
    return any("kind" in one or "services" in one for one in found)


def _is_dockerfile(path: Path) -> bool:
    name = path.name.lower()
    return name.startswith(("dockerfile", "containerfile")) or name.endswith(".dockerfile")


def read(*paths: Path) -> list[Workload]:
    """Read all files together: an autoscaler may be in another file than its target.

    Raise SettingsError for a file that is no manifest or cannot be read.
    """
    found: list[Workload] = []
    in_cluster: list[tuple[str, Table]] = []
    for path in paths:
        if path.suffix in (".service", ".conf"):
            # The drop-ins that `systemctl edit` put beside a unit, in systemd's reading order.
            drop_ins = sorted(path.with_name(f"{path.name}.d").glob("*.conf"))
            found.append(unit(str(path), *map(_text, (path, *drop_ins))))
        elif _is_dockerfile(path):
            found.append(dockerfile(str(path), _text(path)))
        else:
            name = "standard input" if path == STDIN else str(path)
            for document in _documents(name, _text(path)):
                if "kind" in document:
                    in_cluster.append((name, document))
                elif "services" in document:
                    found += compose.workloads(name, document)
                else:
                    raise SettingsError(f"{name} {NEITHER}.")
    return [*found, *kubernetes.workloads(in_cluster)]


def _documents(name: str, text: str) -> list[Table]:
    """Return all documents of a YAML or JSON file, with the items of a List one by one.

    Raise SettingsError if it is neither, has no document, or has one that is not a table.
    """
    try:
        found = _parsed(text)
    except RecursionError:
        raise SettingsError(f"{name}: this is nested too deeply for a manifest.") from None
    except ValueError as error:
        raise SettingsError(f"{name}: this is not valid YAML ({error}).") from None
    if not found or not all(isinstance(one, dict) for one in found):
        raise SettingsError(
            f"{name} has no manifest: the doctor reads Kubernetes YAML, a compose file, a .service "
            "unit or a Dockerfile."
        )
    return [one for document in found for one in _items(document)]


def _parsed(text: str) -> list[Any]:
    try:
        # YAML accepts most of JSON, but no tabs.
        return [json.loads(text)]
    except ValueError:
        return [one for one in _load_yaml(text) if one is not None]


def _load_yaml(text: str) -> list[Any]:
    try:
        from outlast.tools.doctor.manifests.safe_yaml import load
    except ImportError:
        raise SettingsError(
            "--manifest reads YAML with PyYAML: pip install 'outlast[manifest]'."
        ) from None
    return load(text)


def _items(document: Table) -> Iterator[Table]:
    kind, is_list, _ = str(document.get("kind")).rpartition("List")
    if not is_list or "items" not in document:
        yield document
        return
    for one in tables(document, "items"):
        yield from _items({"kind": kind, **one} if kind else one)


def _text(path: Path) -> str:
    try:
        with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as file:
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
