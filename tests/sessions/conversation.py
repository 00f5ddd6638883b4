"""A run that uses every session call, also for processes that kill themselves."""

from outlast import VersionConflict, checkpoint, session, step, workflow

TURNS = ["hi", "HI", "for nobody", "conflict at 3"]


@step
async def think(what: str) -> str:
    return what.upper()


@workflow
async def conversation(first: str) -> list:
    s = session("s")
    await s.append("turns", first)
    name = await s.get("name", "nobody")
    answer = await think(first)
    version = await s.append("turns", answer, f"for {name}")
    await s.update(name="Ada", count=version)
    try:
        await s.set("count", 0, version=1)
    except VersionConflict as conflict:
        await s.append("turns", f"conflict at {conflict.current}")
    await s.delete("name")
    await checkpoint("c").mark("told")
    return [await s.last("turns"), await s.all(), await checkpoint("c").done("told")]
