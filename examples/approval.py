"""An agent with tools that asks a person before it spends money: it waits for the answer for days if need be, in any number of lives.

python examples/approval.py                        # it looks for flights, and asks
outlast runs --waiting-for approval                # from another terminal, also while the agent is dead
outlast send trip-1 approval true                  # or false: then it looks for something cheaper

Installs: outlast. Kill it while it thinks, while it waits, or in the moment of the booking (kill -9, or Ctrl-C), and start it again. What the
model has said is not asked again, what the person has said is not forgotten, and there is one line in bookings.txt.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from outlast import KEY, Happened, current, effect, receive, run, step, workflow

BOOKINGS = Path("bookings.txt")  # the travel agency: it outlives this process, and can be asked
WEEK = 7 * 24 * 3600.0


@dataclass
class Action:
    """What the model wants: a tool and what to call it with, or its answer."""

    tool: str
    words: str


@step(retries=3)
async def think(history: list[str]) -> Action:
    """The model. A real one gets the same: what was asked, and what the tools have said since."""
    print("thinks, knowing", len(history), flush=True)
    await asyncio.sleep(0.3)
    *_, last = history
    if last.startswith("booked"):
        return Action("answer", last)
    if last.startswith("offer"):
        return Action("book", last.removeprefix("offer: "))
    return Action("search", "by train" if last == "refused" else "by air")


@step(retries=3)
async def search(how: str) -> str:
    print("searches", how, flush=True)
    await asyncio.sleep(0.3)
    return f"offer: Lisbon {how}, {70 if how == 'by train' else 240} euros"


@effect(timeout=2)
async def book(offer: str, *, key: str = KEY) -> str:
    with BOOKINGS.open("a") as bookings:
        bookings.write(f"{key} {offer}\n")
    print("books", offer, flush=True)
    await asyncio.sleep(0.5)  # it is booked, and its answer is not here yet: a good moment to die
    return f"booked: {offer}"


@book.verify
async def is_booked(offer: str, *, key: str = KEY) -> Happened[str] | None:
    return (
        Happened(f"booked: {offer}") if BOOKINGS.exists() and key in BOOKINGS.read_text() else None
    )


@step(retries=3)
async def ask(offer: str) -> None:
    """A message to a person; here they read the terminal."""
    print(f"asks: {offer}? outlast send {current().id} approval true", flush=True)


async def book_if_approved(offer: str) -> str:
    await ask(offer)
    return await book(offer) if await receive("approval", bool, timeout=WEEK) else "refused"


TOOLS: dict[str, Callable[[str], Awaitable[str]]] = {"search": search, "book": book_if_approved}


@workflow
async def agent(task: str) -> str:
    history = [task]
    while (action := await think(history)).tool != "answer":
        history.append(await TOOLS[action.tool](action.words))
    return action.words


if __name__ == "__main__":
    print(run(agent("a weekend in Lisbon"), id="trip-1"))
