"""A batch of 1,000 records, without a workflow: two loops. Kill it anywhere, start it again: it goes on with what is not done.

python examples/batch.py        # kill -9 it, or Ctrl-C; then the same command again
outlast show invoices           # how many of how many are done

Installs: outlast. `map` has several in hand at once and keeps what they return; `each` goes one by one. A death repeats what was under
way, at most eight prices or one invoice: hence an invoice is a file with its order's name, which written again is the same file.
"""

import asyncio
import sys
from pathlib import Path

from outlast import Outlast

FOLDER = Path("invoices")
AT_ONCE = 8


async def price(order: str) -> int:
    """In cents, from a service that takes its time."""
    print("price", order, flush=True)
    await asyncio.sleep(0.02)
    return 100 + int(order.removeprefix("order-")) % 900


async def write_invoice(order: str, cents: int) -> None:
    print("invoice", order, flush=True)
    await asyncio.sleep(0.003)
    (FOLDER / f"{order}.txt").write_text(f"{order}: {cents / 100:.2f}\n")


async def main(count: int) -> None:
    orders = [f"order-{number}" for number in range(1, count + 1)]
    FOLDER.mkdir(exist_ok=True)
    async with Outlast() as app:
        prices = await app.map(price, orders, id="prices", concurrency=AT_ONCE)
        async for order in app.each(orders, id="invoices"):
            await write_invoice(order, prices[order])
        print(f"{len(prices)} invoices, {sum(prices.values()) / 100:.2f} in all")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
