"""Consume a plain queue without a workflow: one process puts payloads, others handle them.

python examples/consumer.py put 20     # puts 20 emails; running it again changes nothing
python examples/consumer.py &          # a consumer: start several, kill any of them
outlast queues
outlast runs --status dead             # what has failed three times: mail-13 has no address

Installs: outlast. An item is delivered at least once: if a handler is killed before its ack, the
item is delivered again. So the mail server (outbox.txt here) receives the item's id and accepts one
email per id. On SIGTERM, handlers in flight finish and their items are acked; after kill -9 they
are not.
"""

import asyncio
import os
import sys
from pathlib import Path

from outlast import Item, Outlast

OUTBOX = Path("outbox.txt")  # stands for the mail server
AT_ONCE = 4


class NoSuchAddress(Exception):
    """The email can never be delivered."""


def deliver(id: str, to: str) -> None:
    """Deliver once per id, as a mail server with idempotency keys does."""
    with OUTBOX.open("a+") as outbox:
        outbox.seek(0)
        if f"{id} " not in outbox.read():
            outbox.write(f"{id} {to}\n")


async def send(item: Item) -> None:
    print(os.getpid(), "handles", item.id, "attempt", item.attempts, flush=True)
    await asyncio.sleep(0.1)
    if not item.payload["to"]:
        # Nacks the item. It is retried with growing delays, then becomes a dead letter.
        raise NoSuchAddress(item.id)
    if item.payload["to"].startswith("busy") and item.attempts == 1:
        await item.nack(delay=0.5, reason="the mailbox is busy")  # not now
        return
    deliver(item.id, item.payload["to"])
    await asyncio.sleep(0.1)  # sent, but not acked yet: a good moment to crash


def address(number: int) -> str:
    if number == 13:
        return ""
    return f"busy-{number}@example.com" if number % 5 == 0 else f"user-{number}@example.com"


async def put(count: int) -> None:
    async with Outlast(max_attempts=3) as app:  # stored with each item
        numbers = range(1, count + 1)
        mails = [{"to": address(n)} for n in numbers]
        ids = [f"mail-{n}" for n in numbers]
        # One commit. An id that exists already is the same item.
        await app.queue("mails").put_many(mails, ids=ids)
        print(await app.queue("mails").size(), "waiting")


async def consume() -> None:
    async with Outlast() as app:
        print(os.getpid(), "consumes", flush=True)
        # Runs until SIGTERM. An item is acked if its handler returns, and nacked if it raises.
        await app.queue("mails").consume(send, concurrency=AT_ONCE)


if __name__ == "__main__":
    asyncio.run(put(int(sys.argv[2])) if sys.argv[1:2] == ["put"] else consume())
