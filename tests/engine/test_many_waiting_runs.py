"""A process with many runs that wait for messages reads for them in few threads."""

import asyncio
import threading

from outlast import Outlast, receive, workflow

RUNS = 150


@workflow
async def waiting() -> int:
    return await receive("go")


def test_threads_do_not_grow_with_the_number_of_waiting_runs(address):
    async def main():
        async with Outlast(address, linger=600.0) as app:
            runs = [await app.start(waiting(), id=f"r{number}") for number in range(RUNS)]
            threads = [one for one in threading.enumerate() if one.name == "outlast-step"]
            await asyncio.gather(*(app.send(run.id, "go", n) for n, run in enumerate(runs)))
            results = await asyncio.gather(*(run.result() for run in runs))
            return results, len(threads)

    results, threads = asyncio.run(main())
    assert results == list(range(RUNS))
    assert threads < RUNS / 3
