"""Book a trip at three companies or at none: a saga.

python examples/trip.py Lisbon              # a flight, a hotel, a car
python examples/trip.py Porto --no-car      # no car left: cancels the hotel, then the flight
outlast show trip-Porto

Installs: outlast. Kill it anywhere with kill -9 or Ctrl-C, then start it again: nothing is booked
twice. One file, ledger.txt, stands for the companies, with a line for every booking and
cancellation. Like real companies, it outlives this process, repeats a request as often as it is
made, and can be asked.
"""

import asyncio
import sys
from pathlib import Path

from outlast import KEY, Happened, effect, run, workflow

LEDGER = Path("ledger.txt")
SLOW = 0.3  # seconds from the ledger's entry to the company's answer: a good moment to crash


class SoldOut(Exception):
    """The company has nothing left. Nothing was booked."""


async def tell(line: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{line}\n")
    print(line, flush=True)
    await asyncio.sleep(SLOW)


def ledger() -> list[str]:
    return LEDGER.read_text().splitlines() if LEDGER.exists() else []


@effect(timeout=1, failed_on=SoldOut)
async def book(what: str, city: str, left: bool = True, *, key: str = KEY) -> str:
    if not left:
        raise SoldOut(f"no {what} left in {city}")
    await tell(f"book {what} {key}")
    return f"{what} in {city}"


@book.verify
async def is_booked(what: str, city: str, *, key: str = KEY) -> Happened[str] | None:
    return Happened(f"{what} in {city}") if f"book {what} {key}" in ledger() else None


@book.compensate
async def cancel(_booking: str | None, what: str, effect_key: str) -> None:
    if f"cancel {what} {effect_key}" not in ledger():  # it may be called again after a crash
        await tell(f"cancel {what} {effect_key}")


@workflow
async def trip(city: str, car: bool = True) -> list[str]:
    return [await book("flight", city), await book("hotel", city), await book("car", city, car)]


if __name__ == "__main__":
    city = sys.argv[1] if len(sys.argv) > 1 else "Lisbon"
    call = trip(city, "--no-car" not in sys.argv)
    try:
        print("booked:", ", ".join(run(call, id=f"trip-{city}", effect_margin=0.5)))
    except SoldOut as error:
        print("no trip:", error)
