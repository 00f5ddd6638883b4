"""The code before a deploy."""

from fleet_flows import gated, note, wait_for  # noqa: F401 - both know the workflow gated

from outlast import receive, step, workflow


@step
async def charge(what: str) -> str:
    note("before")
    return f"charged {what}"


@step
async def ship(what: str) -> str:
    note("before")
    return f"shipped {what}"


@workflow
async def order(what: str) -> list[str]:
    words = [await charge(what)]
    words.append(await receive("go", str))
    return [*words, await ship(what), "old"]


@workflow
async def version(gate: str) -> str:
    await wait_for(gate)
    return "old"
