"""An agent that asks a person: it waits for a message, for days if need be, in any number of lives.

python examples/approval.py &
outlast runs --waiting-for approval
outlast send trip-1 approval true
"""

import asyncio

from outlast import receive, run, step, workflow


@step
async def plan(city: str) -> str:
    await asyncio.sleep(0.1)
    return f"three days in {city}"


@step
async def book(trip: str) -> str:
    await asyncio.sleep(0.1)
    return f"booked: {trip}"


@workflow
async def travel(city: str) -> str:
    trip = await plan(city)
    try:
        approved = await receive("approval", bool, timeout=7 * 24 * 3600)
    except TimeoutError:
        return "nobody answered"
    return await book(trip) if approved else "not approved"


if __name__ == "__main__":
    print(run(travel("Lisbon"), id="trip-1"))
