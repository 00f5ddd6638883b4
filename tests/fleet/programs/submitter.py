"""Submit runs in windows until killed: `submitter.py FOLDER JSON`, with a first number, names and options of `submit`.

Before each submission it writes the name and the run's number to `asked`, and after it to `accepted`.
"""

import asyncio
import json
import os
import sys
from itertools import count
from pathlib import Path

from fleet_flows import one_step

from outlast import AlreadySubmitted, Outlast

FOLDER, PLAN = Path(sys.argv[1]), json.loads(sys.argv[2])


def note(file: str, *words: object) -> None:
    fd = os.open(FOLDER / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, ("\t".join(map(str, words)) + "\n").encode())
    os.close(fd)


async def main() -> None:
    async with Outlast((FOLDER / "store").read_text(), signals=False) as app:
        for number in count(PLAN["first"]):
            for name in PLAN["names"]:
                note("asked", name, number)
                try:
                    run = await app.submit(one_step(number), id=name, **PLAN["options"])
                except AlreadySubmitted:
                    continue
                note("accepted", name, number, run.id)
            if number == PLAN["first"]:
                print('"first round"', flush=True)


asyncio.run(main())
