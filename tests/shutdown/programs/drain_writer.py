"""`drain_writer.py STORE`: commit batches of runs without a pause, in a queue that no worker claims from."""

import asyncio
import itertools
import sys

from drain_flows import chain

from outlast import Outlast


async def main() -> None:
    async with Outlast(sys.argv[1], signals=0) as app:
        for number in itertools.count():
            await app.submit_many([chain(0, 1, 0.0)] * 200, queue="elsewhere", delay=3600.0)
            print(number, flush=True)


asyncio.run(main())
