"""A plain queue: payloads put by one process, handled by others. No workflow; an item is acked once, tried again, or ends as a dead letter.

python examples/consumer.py put 20          # 20 mails into the queue; the same again changes nothing
python examples/consumer.py &               # a consumer: start as many as you like, kill any of them
outlast queues
outlast runs --status dead                  # what has failed three times: mail-13 has no address

Installs: outlast. An item is handed out at least once: a handler that is killed before its ack is called again. So the mail server (outbox.txt here)
is given the item's id, and takes a mail under one id once. SIGTERM lets the handlers under way end and acks their items; kill -9 does not.
"""

import asyncio
import os
import sys
from pathlib import Path

from outlast import Item, Outlast

OUTBOX = Path("outbox.txt")  # the mail server: it outlives the consumers
AT_ONCE = 4


class NoSuchAddress(Exception):
    """The mail cannot be sent, now or later."""


def deliver(id: str, to: str) -> None:
    """Under one id once, as mail servers with idempotency keys do."""
    with OUTBOX.open("a+") as outbox:
        outbox.seek(0)
        if f"{id} " not in outbox.read():
            outbox.write(f"{id} {to}\n")


async def send(item: Item) -> None:
    print(os.getpid(), "handles", item.id, "attempt", item.attempts, flush=True)
    await asyncio.sleep(0.1)
    if not item.payload["to"]:
        raise NoSuchAddress(
            item.id
        )  # nacks it: again after a while, longer each time; at last a dead letter
    if item.payload["to"].startswith("busy") and item.attempts == 1:
        await item.nack(delay=0.5, reason="the mailbox is busy")  # not now
        return
    deliver(item.id, item.payload["to"])
    await asyncio.sleep(0.1)  # sent, and not yet acked: a good moment to die


def address(number: int) -> str:
    if number == 13:
        return ""
    return f"busy-{number}@example.com" if number % 5 == 0 else f"user-{number}@example.com"


async def put(count: int) -> None:
    async with Outlast(max_attempts=3) as app:  # recorded with each item
        numbers = range(1, count + 1)
        mails, ids = [{"to": address(n)} for n in numbers], [f"mail-{n}" for n in numbers]
        # One commit; an id that is there already is the same item.
        await app.queue("mails").put_many(mails, ids=ids)
        print(await app.queue("mails").size(), "waiting")


async def consume() -> None:
    async with Outlast() as app:
        print(os.getpid(), "consumes", flush=True)
        # Until SIGTERM. What returns is acked, what raises is nacked.
        await app.queue("mails").consume(send, concurrency=AT_ONCE)


if __name__ == "__main__":
    asyncio.run(put(int(sys.argv[2])) if sys.argv[1:2] == ["put"] else consume())
