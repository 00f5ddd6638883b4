"""Workflows whose runs are parked: an effect of which nobody knows whether it happened, and one that cannot be undone."""

UNCERTAIN = """

@effect(timeout=0.1)
async def post() -> str:
    raise ConnectionError("the line was cut")


@workflow
async def posting() -> str:
    return await post()


@effect(timeout=0.1)
async def book() -> str:
    return "room 7"


@book.compensate(retries=0)
async def unbook(booking: str | None) -> None:
    raise RuntimeError("the hotel is closed")


@workflow
async def trip() -> None:
    await book()
    raise ValueError("no flight")
"""
