"""What the tests of sessions in runs share."""

import asyncio

from outlast import (
    step,
)
from outlast.store.commands import UpdateSession

held: list = []


@step
async def hold(what: str = "") -> str:
    held.append(what)
    await asyncio.sleep(100)
    return what


def put(world, id="s", token="outside", **fields):
    """Write what another process would write."""
    world.store.commit(
        [UpdateSession(id, token, {name: str(value) for name, value in fields.items()})]
    )


def found(world, id="s"):
    row = world.store.session(id)
    return dict(row.fields) if row else None


def items(world, field="turns", id="s"):
    return world.store.items(id, field)
