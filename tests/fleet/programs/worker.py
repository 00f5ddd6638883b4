"""A worker: `worker.py FOLDER JSON`, with settings and

module, flows   the module beside this one whose workflows it knows, and which of them (none: all)
consume         {queue: handler}: consume items too
worker          false: claim no runs
clock           seconds to add to the time are read from the file `clock`
tick            seconds between the lines that it writes into the outside log
at_read         what befalls it when it first reads a journal: "stop" (SIGSTOP, and
                it reads when the file `known` exists), "fail"

It says {"up": …} when it is open, and {"hook": …, "id": …} when a hook is called. SIGTERM closes it in good order.
"""

import asyncio
import importlib
import json
import logging
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from outlast import Outlast, RunInfo, StoreUnavailable, Workflow
from outlast.store.address import store_at

folder, options = sys.argv[1], json.loads(sys.argv[2])
logging.basicConfig(
    level=logging.INFO, format="%(relativeCreated)d %(name)s %(levelname)s %(message)s"
)
module = importlib.import_module(options.pop("module"))
names, consume = options.pop("flows", ()), options.pop("consume", {})
workflows = [
    flow
    for name, flow in vars(module).items()
    if isinstance(flow, Workflow) and name in (names or vars(module))
]


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def hook(what: str, info: RunInfo) -> None:
    say(hook=what, id=info.id, status=info.status, reason=info.reason, deaths=info.deaths)


def clock() -> float:
    return time.time() + float(Path(folder, "clock").read_text())


def befall(store: Any, fate: str) -> None:
    """The real store, in a process that has bad luck once."""
    journal = store.journal

    def unlucky(*args: Any, **limits: Any) -> Any:
        store.journal = journal
        say(befallen=fate)
        if fate == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            while not Path(folder, "known").exists():
                time.sleep(0.005)
        elif fate == "fail":
            raise StoreUnavailable("it could not be read")
        return journal(*args, **limits)

    store.journal = unlucky


async def tick(seconds: float) -> None:
    while True:
        module.log("tick", os.getpid(), time.time())
        await asyncio.sleep(seconds)


async def main() -> None:
    address, fate = Path(folder, "store").read_text(), options.pop("at_read", "")
    moved = clock if options.pop("clock", False) else None
    store: Any = (
        store_at(address, clock=moved, heartbeat=options["heartbeat"]) if fate or moved else address
    )
    if fate:
        befall(store, fate)
    ticking = options.pop("tick", None)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    hooks = {"on_dead": partial(hook, "dead"), "on_parked": partial(hook, "parked")}
    options.setdefault("worker", True)
    async with Outlast(store, workflows=workflows, **hooks, **options) as app:
        module.APP = app
        consumers = [
            asyncio.create_task(app.queue(queue).consume(getattr(module, handler)))
            for queue, handler in consume.items()
        ]
        if ticking:
            consumers.append(asyncio.create_task(tick(ticking)))
        say(up=os.getpid())
        await stop.wait()
        if ticking:
            consumers[-1].cancel()
    await asyncio.gather(*consumers, return_exceptions=True)


asyncio.run(main())
