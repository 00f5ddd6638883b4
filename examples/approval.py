"""Ask a person before an agent spends money, and wait for the answer for days.

python examples/approval.py                # searches for flights, then asks
outlast runs --waiting-for approval        # from another terminal, even while the agent is dead
outlast send trip-1 approval true          # or false: then it searches for something cheaper

Installs: outlast. Kill it while it thinks, waits or books (kill -9 or Ctrl-C), then start it again.
Recorded answers of the model and the person are kept, and bookings.txt has one line.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from outlast import KEY, Happened, current, effect, receive, run, step, workflow

BOOKINGS = Path("bookings.txt")  # stands for the travel agency, which can be asked
WEEK = 7 * 24 * 3600.0


@dataclass
class Action:
    """Hold the model's decision: a tool and its argument, or the final answer."""

    tool: str
    words: str


@step(retries=3)
async def think(history: list[str]) -> Action:
    """Ask the model. A real one also receives the task and the results of the tools so far."""
    print("thinks, turn", len(history), flush=True)
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
    await asyncio.sleep(0.5)  # booked, but not confirmed yet: a good moment to crash
    return f"booked: {offer}"


@book.verify
async def is_booked(offer: str, *, key: str = KEY) -> Happened[str] | None:
    return (
        Happened(f"booked: {offer}") if BOOKINGS.exists() and key in BOOKINGS.read_text() else None
    )


@step(retries=3)
async def ask(offer: str) -> None:
    """Send a message to a person, who reads the terminal in this example."""
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
