"""Put plain work items into a queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from outlast.codec.identifiers import check_id
from outlast.engine.actions import checked_by, checked_keys
from outlast.errors import Conflict, Draining
from outlast.settings.limits import check_size
from outlast.store.commands import ITEM, Submit, Submitted

if TYPE_CHECKING:
    from outlast.engine.engine import Engine


async def put_items(
    engine: Engine,
    queue: str,
    payloads: Sequence[str],
    names: Sequence[str],
    *,
    priority: int,
    delay: float,
    wait: float,
    keys: Iterable[str | None] | None = None,
    by: str | None = None,
) -> list[Submitted]:
    """Put encoded payloads into a queue in one commit, all or none. Return their outcomes.

    `names` are the items' own ids. Raise Draining, Backpressure or LimitExceeded, and Conflict if
    an id is in the queue with another payload.
    """
    if engine.shutdown.begun:
        raise Draining(
            f"this process is shutting down, so nothing was put into queue {queue!r}. "
            "Put the item from another process."
        )
    if len(names) != len(payloads):
        raise ValueError(
            f"pass one id for each payload: there are {len(payloads)} payloads and "
            f"{len(names)} ids."
        )
    by = checked_by(engine, by)
    commands: list[Submit] = []
    given = checked_keys(engine, len(names), keys)
    for name, text, key in zip(names, payloads, given, strict=True):
        check_size(engine.settings, text, f"the payload of item {name!r}")
        id = item_id(queue, name, engine.settings.id_length_max)
        commands.append(
            engine.submissions.build(
                id, ITEM, text, queue=queue, priority=priority, delay=delay, key=key, by=by
            )
        )
    outcomes = await engine.submissions.enqueue(commands, wait)
    for command, outcome in zip(commands, outcomes, strict=True):
        row = outcome.row
        if row is not None and (row.workflow, row.args) != (ITEM, command.args):
            there = f"item {row.args}" if row.workflow == ITEM else f"{row.workflow}({row.args})"
            raise Conflict(command.id, there[:500], f"item {command.args}"[:500])
    return outcomes


def item_id(queue: str, name: str, length_max: int) -> str:
    """Return the id of an item's run: its queue's name, a slash and its own id."""
    check_id(name, length_max, "item id")
    return check_id(f"{queue}/{name}", length_max, "item id with its queue's name")


def item_name(queue: str, id: str) -> str:
    """Return an item's own id, given the id of its run."""
    return id.removeprefix(f"{queue}/")
