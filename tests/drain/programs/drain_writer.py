"""Somebody else who writes, without a pause: `drain_writer.py STORE` commits batches of runs that nobody is to claim."""

import asyncio
import itertools
import sys

from drain_flows import chain

from outlast import Outlast


async def main() -> None:
    async with Outlast(sys.argv[1], signals=0) as app:
        for number in itertools.count():
            await app.submit_many([chain(0, 1, 0.0)] * 1000, queue="elsewhere", delay=3600.0)
            print(number, flush=True)


asyncio.run(main())
