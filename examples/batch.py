"""Process 1,000 records in two loops, without a workflow, and resume after a crash.

python examples/batch.py        # kill -9 it or press Ctrl-C, then run the same command again
outlast show invoices           # shows how many are done

Installs: outlast. `map` processes several records at once and keeps the results. `each` processes
them one by one. A crash repeats what was in flight: at most eight prices or one invoice. So each
invoice is a file named after its order, and writing it again produces the same file.
"""

import asyncio
import sys
from pathlib import Path

from outlast import Outlast

FOLDER = Path("invoices")
AT_ONCE = 8


async def price(order: str) -> int:
    """Return the price in cents, from a slow service."""
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
