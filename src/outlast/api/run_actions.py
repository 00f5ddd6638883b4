"""Start and submit runs through an open app's engine, and return handles on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.api.run import Run
from outlast.codec.identifiers import new_ids
from outlast.engine import actions
from outlast.engine.actions import checked_id
from outlast.engine.submission import OnConflict, check_on_conflict

if TYPE_CHECKING:
    from outlast.api.workflow import Call, Workflow
    from outlast.engine.engine import Engine
    from outlast.engine.submission_windows import Policy

R = TypeVar("R")


async def start(engine: Engine, call: Call[R], id: str | None, on_conflict: OnConflict) -> Run[R]:
    """Execute a run in this process, in the background. See `Outlast.start`."""
    id = new_ids(1)[0] if id is None else checked_id(engine, id)
    check_on_conflict(on_conflict)
    await engine.runs.start(call, id, on_conflict=on_conflict)
    return Run(engine, id, call.workflow)


def handle_of(engine: Engine, workflow: Workflow[..., R], id: str) -> Run[R]:
    """Return a handle on a run, whether it exists or not."""
    engine.workflows.register(workflow)
    return Run(engine, checked_id(engine, id), workflow)


async def submit_in_window(engine: Engine, call: Call[R], policy: Policy, **options: Any) -> Run[R]:
    """Queue a run in a window, and return the run. See `actions.submit_in_window`."""
    submitted = await actions.submit_in_window(engine, call, policy, **options)
    return Run(engine, submitted.id, call.workflow)


async def submit(
    engine: Engine, calls: Sequence[Call[R]], ids: Iterable[str] | None, **options: Any
) -> list[Run[R]]:
    """Queue runs in one commit, all or none, and return them in order. See `actions.submit`."""
    submitted = await actions.submit(engine, calls, ids, **options)
    return [Run(engine, id, call.workflow) for (id, _), call in zip(submitted, calls, strict=True)]
