"""Make many workers quickly: `racers.py FOLDER COUNT JSON` forks COUNT of them before anything is open. Each makes the file up-PID.

They end when their parent is gone.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import fleet_flows

from outlast import Outlast

folder, count, options = sys.argv[1:]
parent = os.getpid()


async def work() -> None:
    flows = [fleet_flows.one_step]
    async with Outlast(
        Path(folder, "store").read_text(), worker=True, workflows=flows, **json.loads(options)
    ):
        Path(folder, f"up-{os.getpid()}").touch()
        while os.getppid() == parent:
            await asyncio.sleep(0.5)


for _ in range(int(count)):
    if not os.fork():
        asyncio.run(work())
        os._exit(0)
for _ in range(int(count)):
    os.wait()
