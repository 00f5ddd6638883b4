"""Examine the text of a manifest."""

from pathlib import Path

from outlast.settings.load import load
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Level
from outlast.tools.doctor.manifests.files import read
from outlast.tools.doctor.registry import IN_MANIFESTS, examine


def findings(folder: Path, name: str, text: str, **facts):
    path = folder / name
    path.write_text(text)
    workloads = tuple(read(path))
    return examine(
        Facts(load({"store": "memory:"}, {}), "", workloads=workloads, **facts), IN_MANIFESTS
    )


def fired(found) -> set[tuple[str, str]]:
    return {(one.check, one.level.value) for one in found if one.level is not Level.OK}
