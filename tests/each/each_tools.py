"""Go through items with `app.each`, and look at what is done."""

import asyncio


async def stream(items, pause=0.0):
    for item in items:
        if pause:
            await asyncio.sleep(pause)
        yield item


def done_keys(world, id="job"):
    return [entry.key for entry in world.journal(id) if entry.kind == "done"]


def through(items, id="job", key=None, upto=None):
    """Return an action that goes through the items, up to `upto` of them, and returns what it saw."""

    async def main(app):
        seen = []
        async for item in app.each(items, id=id, key=key):
            seen.append(item)
            if len(seen) == upto:
                break
        return seen

    return main
