"""The code after a deploy: an order is checked before it is charged, which no run that has begun can do any more."""

from fleet_flows import add, note

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
async def version() -> str:
    await add(0, 0.2)
    return "new"


@workflow
async def only_new() -> str:
    await add(0)
    return "new"
