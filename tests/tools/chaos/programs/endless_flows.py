"""Define a workflow that does not end in a test."""

from outlast import sleep, workflow


@workflow
async def never_ends(topic: str) -> None:
    await sleep(3600)
