"""Turn `MODULE[:APP]...` into what a worker executes: workflows and an app."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from outlast.api.internals import internals
from outlast.api.outlast import Outlast
from outlast.api.workflow import Workflow
from outlast.cli.target import imported, refusal
from outlast.cli.text import safe
from outlast.sync.app import Outlast as SyncOutlast

PARAMETER = "MODULE[:APP]"
APP = "app"
"""The name of the Outlast object that is used when the command line names none."""


class WorkerTarget(NamedTuple):
    workflows: list[Workflow[..., Any]]
    app: Outlast | None


def worker_target(targets: Sequence[str]) -> WorkerTarget:
    """Import the modules and collect their workflows and the app.

    Raise a usage error if there is nothing to work on.
    """
    workflows: dict[str, Workflow[..., Any]] = {}
    apps: dict[str, Outlast] = {}
    for target in targets:
        place, name = _parts(target)
        module = imported(place, PARAMETER)
        app = _app_of(module, place, name)
        if app is not None:
            apps[target] = app
        for workflow in _workflows_of(module):
            _add(workflows, workflow)
    app = _only(apps)
    if app is not None:
        for workflow in internals(app).config.workflows:
            _add(workflows, workflow)
    if not workflows and (app is None or internals(app).lifespan is None):
        where = ", ".join(safe(target) for target in targets)
        raise refusal(
            f"there is nothing to work on in {where}: no workflow (decorate a function with "
            "@workflow), and no Outlast "
            f"object with workflows or a lifespan that consumes a queue (call it {APP!r}, or name "
            "it: MODULE:NAME).",
            PARAMETER,
        )
    return WorkerTarget(list(workflows.values()), app)


def app_beside(target: str) -> Outlast | None:
    """Return the `app` in the module of FILE:WORKFLOW.

    Return None if there is none, or if it was given a store object instead of an address.
    """
    found = getattr(imported(target.rpartition(":")[0]), APP, None)
    return found if isinstance(found, Outlast) and internals(found).config.store is None else None


def _parts(target: str) -> tuple[str, str | None]:
    place, colon, name = target.rpartition(":")
    if not colon:
        return target, None
    if not place or not name:
        raise refusal(
            f"{safe(target)!r} is not MODULE or MODULE:APP, like agent.py or pkg.mod:app.",
            PARAMETER,
        )
    return place, name


def _app_of(module: ModuleType, place: str, name: str | None) -> Outlast | None:
    found: Any = module
    for part in (name or APP).split("."):
        found = getattr(found, part, None)
    if isinstance(found, Outlast):
        return found
    if isinstance(found, SyncOutlast):
        raise refusal(
            f"{safe(name or APP)!r} in {safe(place)} is an outlast.sync.Outlast. A worker needs "
            "an outlast.Outlast.",
            PARAMETER,
        )
    if name is None:
        return None
    if isinstance(found, Workflow):
        raise refusal(
            f"{safe(name)!r} is a workflow. A worker executes all workflows of a module: "
            f"`outlast worker {safe(place)}`.",
            PARAMETER,
        )
    here = (
        ", ".join(safe(key) for key, value in vars(module).items() if isinstance(value, Outlast))
        or "none"
    )
    raise refusal(
        f"{safe(name)!r} is not an Outlast object in {safe(place)}. "
        f"Outlast objects in that module: {here}.",
        PARAMETER,
    )


def _workflows_of(module: ModuleType) -> Iterator[Workflow[..., Any]]:
    """Yield the workflows a module defines or imports, and those in its own classes."""
    for value in list(vars(module).values()):
        if isinstance(value, Workflow):
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            yield from (inner for inner in vars(value).values() if isinstance(inner, Workflow))


def _add(workflows: dict[str, Workflow[..., Any]], workflow: Workflow[..., Any]) -> None:
    known = workflows.setdefault(workflow.name, workflow)
    if known.fn is not workflow.fn:
        raise refusal(
            f"two workflows have the name {safe(workflow.name)!r}, one of "
            f"{safe(known.fn.__module__)} and one of "
            f"{safe(workflow.fn.__module__)}. Name one: @workflow(name=...).",
            PARAMETER,
        )


def _only(apps: dict[str, Outlast]) -> Outlast | None:
    chosen = list({id(app): app for app in apps.values()}.values())
    if len(chosen) > 1:
        raise refusal(
            f"a worker uses one Outlast object, and these modules define {len(chosen)}: "
            f"{', '.join(map(safe, apps))}. Start one "
            "worker for each.",
            PARAMETER,
        )
    return chosen[0] if chosen else None
