"""Execute a workflow in a process of its own that kills itself with SIGKILL at its Nth write.

    python -m outlast.testing.crash_process DB N before|after FILE:WORKFLOW [JSON ARGS]

DB is a SQLite file, or `-`. With `-`, the variable OUTLAST_TEST_CRASH_STORE holds the address of a
store, which then does not appear in the process list. The outcome of the run is one JSON document
on stdout; what the workflow prints goes to stderr.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from outlast.api.outlast import Outlast
from outlast.api.targets import load_workflow
from outlast.errors import StoreError
from outlast.store.address import store_at
from outlast.store.protocol import Store
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.crash_points import CrashingStore
from outlast.testing.killed_processes import ADDRESS

HEARTBEAT = 0.05


def main() -> None:
    db, at, when, target, *args = sys.argv[1:]
    answer = os.dup(1)
    os.dup2(2, 1)
    # Load as `outlast run` does, so that the file can import its neighbours.
    workflow = load_workflow(target)
    store: Store = (
        store_at(os.environ[ADDRESS], heartbeat=HEARTBEAT)
        if db == "-"
        else SQLiteStore(db, heartbeat=HEARTBEAT)
    )
    plug: Any = CrashingStore(
        store,
        int(at) or None,
        when,  # type: ignore[arg-type]
        lambda: os.kill(os.getpid(), signal.SIGKILL),
    )

    call = workflow(*map(json.loads, args))

    async def live() -> Any:
        async with Outlast(plug, heartbeat=HEARTBEAT, max_attempts=1_000) as app:
            return await (await app.start(call, id="crash")).result()

    try:
        end = {"result": json.loads(workflow.signature.returns().encode(asyncio.run(live())))}
    except StoreError:
        # Not an outcome of the run. It would be the same at every crash, as if nothing were wrong.
        raise
    except Exception as error:
        end = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(answer, "w") as stdout:
        json.dump(end, stdout)


if __name__ == "__main__":
    main()
