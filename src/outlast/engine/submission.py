"""Queue runs and items, all in one commit or none, and wait for room if a queue is full.

The id of a run is its idempotency key. This module decides whether a repeated submit joins the run
that has the id.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from outlast.errors import Backpressure, Conflict, LimitExceeded, SettingsError
from outlast.settings.limits import check_size
from outlast.store.commands import CONFLICT, Refused, Submit, SubmitMany, Submitted

if TYPE_CHECKING:
    from outlast.engine.known_workflows import KnownWorkflows
    from outlast.engine.notifier import ChangeNotifier
    from outlast.engine.store_client import StoreClient
    from outlast.execution.definitions import WorkflowCall
    from outlast.settings import Settings
    from outlast.store.rows import RunRow

OnConflict = Literal["raise", "join"]
"""What a repeated id with other arguments does: raise Conflict, or join the existing run."""
Joins = Callable[[str, str, Submit], bool]
"""Whether a submission joins a run of this workflow and these encoded arguments."""

PRIORITY_MAX = 1_000_000
RECHECK_SECONDS = 0.25
"""Seconds between two attempts while a queue is full.

A claim makes room but sends no notification.
"""


def check_seconds(what: str, seconds: float) -> None:
    """Raise SettingsError unless it is a finite number of seconds, 0 or more."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 <= seconds < math.inf
    ):
        raise SettingsError(
            f"{what}={seconds!r} must be a number of seconds, 0 or more, and finite."
        )


def check_on_conflict(on_conflict: str) -> None:
    """Raise SettingsError unless it is one of the two policies."""
    if on_conflict not in ("raise", "join"):
        raise SettingsError(f'on_conflict={on_conflict!r} must be "raise" or "join".')


def joins(workflow: str, args: str, call: WorkflowCall, on_conflict: OnConflict) -> bool:
    """Return whether a call may join a run of this workflow and these encoded arguments.

    A call of another workflow never may: the result would be decoded by the wrong annotation.
    """
    if workflow != call.workflow.name:
        return False
    return on_conflict == "join" or call.workflow.signature.same_call(args, call.args)


def check_joins(row: RunRow, call: WorkflowCall, on_conflict: OnConflict) -> None:
    """Raise Conflict unless the call may join this run."""
    if not joins(row.workflow, row.args, call, on_conflict):
        raise conflict(row.id, row.workflow, row.args, call.workflow.name, call.args)


def conflict(id: str, workflow: str, args: str, asked_workflow: str, asked_args: str) -> Conflict:
    """Build the error for an id that is taken by other work."""
    return Conflict(id, f"{workflow}({args})"[:500], f"{asked_workflow}({asked_args})"[:500])


def is_equal(workflow: str, args: str, run: Submit) -> bool:
    """Return whether a submission asks for exactly this work."""
    return (workflow, args) == (run.workflow, run.args)


class Submissions:
    """Build submit commands and queue them."""

    def __init__(
        self,
        client: StoreClient,
        workflows: KnownWorkflows,
        notifier: ChangeNotifier,
        settings: Settings,
    ) -> None:
        self._client = client
        self.workflows = workflows
        self._notifier = notifier
        self._settings = settings

    def for_call(self, call: WorkflowCall, id: str, **fields: Any) -> Submit:
        """Build the submit command for a call of a workflow, and register the workflow.

        Raise TypeError for anything but a call, and LimitExceeded if its arguments are too large.
        """
        if not hasattr(call, "workflow"):
            raise TypeError(
                f"Pass a call of a workflow, like submit(report('tides')), not {call!r}."
            )
        workflow = call.workflow
        self.workflows.register(workflow)
        check_size(self._settings, call.args, f"the arguments of {workflow.name}")
        workflow.signature.returns()
        fields |= {"timeout": workflow.timeout, "abandon_after": workflow.abandon_after}
        return self.build(id, workflow.name, call.args, **fields)

    def build(self, id: str, workflow: str, args: str, **fields: Any) -> Submit:
        """Build a submit command with a fresh token and seed, and the limits from the settings."""
        # One call for both values: it is a system call, and not a cheap one.
        chance = secrets.token_hex(24)
        settings = self._settings
        return Submit(
            id=id,
            workflow=workflow,
            args=args,
            token=chance[:16],
            seed=chance[16:],
            attempts_max=settings.max_attempts,
            interruptions_max=settings.interruptions_max,
            depth_max=settings.queue_depth_max,
            **fields,
        )

    async def enqueue(
        self, runs: list[Submit], wait: float, joins: Joins = is_equal
    ) -> list[Submitted]:
        """Queue all runs in one commit, or none, and return their outcomes in order.

        Raise Backpressure if there is no room within `wait` seconds, or at once if there never can
        be. Raise Conflict if an id is taken by work that the submission does not join. Nothing is
        written in either case.
        """
        self._check(runs, wait)
        now = asyncio.get_running_loop().time
        until = now() + wait
        left = list(runs)
        joined: dict[str, Submitted] = {}
        while left:
            seen = self._notifier.count
            command = left[0] if len(left) == 1 else SubmitMany(tuple(left))
            outcome = await self._client.writer.execute(command)
            if not isinstance(outcome, Refused):
                outcomes = outcome if isinstance(outcome, list) else [outcome]
                if len(left) == len(runs):
                    return outcomes
                joined |= {run.id: one for run, one in zip(left, outcomes, strict=True)}
                break
            if outcome.why == CONFLICT:
                left, joined = await self._without_joined(runs, joins)
                continue
            depth, limit, needed = map(int, outcome.detail.split("/"))
            seconds = until - now()
            if seconds <= 0 or needed > limit:
                raise Backpressure(runs[0].queue, depth, limit)
            await self._notifier.wait(min(seconds, RECHECK_SECONDS), seen)
        return [joined[run.id] for run in runs]

    def _check(self, runs: list[Submit], wait: float) -> None:
        """Raise SettingsError or LimitExceeded for options that no store should see."""
        if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait >= 0:
            raise SettingsError(f"wait={wait!r} must be a number of seconds, 0 or more.")
        # All runs share these fields.
        for run in runs[:1]:
            check_seconds("delay", run.delay)
            if type(run.priority) is not int or abs(run.priority) > PRIORITY_MAX:
                raise SettingsError(
                    f"priority={run.priority!r} must be a whole number within ±{PRIORITY_MAX:,}."
                )
        many_max = self._settings.submit_many_max
        if len(runs) > many_max:
            raise LimitExceeded("submit_many_max", many_max, len(runs), "runs in one commit")

    async def _without_joined(
        self, runs: Sequence[Submit], joins: Joins
    ) -> tuple[list[Submit], dict[str, Submitted]]:
        """Return the runs still to be queued, each id once, and the outcomes of existing ones.

        The stores compare the text of a batch's arguments. What they refuse may still join the
        existing run.
        """
        first: dict[str, Submit] = {}
        for run in runs:
            earlier = first.setdefault(run.id, run)
            if not joins(earlier.workflow, earlier.args, run):
                other = f"{run.workflow}({run.args})"[:500]
                raise Conflict(run.id, "another call of the same batch", other)
        store = self._client.store
        rows = await self._client.read(lambda: [store.run(id) for id in first])
        there = {row.id: row for row in rows if row is not None}
        for run in runs:
            row = there.get(run.id)
            if row is not None and not joins(row.workflow, row.args, run):
                raise conflict(run.id, row.workflow, row.args, run.workflow, run.args)
        left = [run for id, run in first.items() if id not in there]
        return left, {id: Submitted(row, new=False) for id, row in there.items()}
