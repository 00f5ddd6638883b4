"""The code after a deploy: it checks an order first, which runs that began on the old code cannot do."""

from fleet_flows import add, note, wait_for

from outlast import receive, step, workflow


@step
async def check(what: str) -> str:
    note("before")
    return f"checked {what}"


@step
async def ship(what: str) -> str:
    note("before")
    return f"shipped {what}"


@workflow
async def order(what: str) -> list[str]:
    words = [await check(what)]
    words.append(await receive("go", str))
    return [*words, await ship(what), "new"]


@workflow
async def version(gate: str) -> str:
    await wait_for(gate)
    return "new"


@workflow
async def only_new() -> str:
    await add(0)
    return "new"
