"""Whole programs on a file store: they crash at every write, and end as if nothing had happened."""

import asyncio
import os
from itertools import count

from file_history import quick_folder

from outlast import receive, sleep, step, workflow
from support.crash_points import crash_at_some
from support.quick_files import QuickFileStore

LONG = "OUTLAST_TEST_KILLS" in os.environ


@step
async def double(n: int) -> int:
    return 2 * n


@workflow
async def child(n: int) -> int:
    return await double(n)


@workflow
async def program(n: int) -> list:
    first = await asyncio.gather(*(double(k) for k in range(n)))
    await sleep(3600)
    word = await receive("word", type=str)
    return [*first, await child(7), word]


async def world(app) -> None:
    await app.send("crash", "word", "hello", message_id="1")


def test_program_that_crashes_at_every_write_ends_with_the_same_result():
    with quick_folder() as folder:
        places = count()

        def new_place():
            place = folder / str(next(places))
            return lambda clock: QuickFileStore(place, clock=clock)

        report = crash_at_some(program(3), every=1 if LONG else 2, store=new_place, outside=world)
    assert report.result == [0, 2, 4, 14, "hello"]
    assert report.crashes > 10
