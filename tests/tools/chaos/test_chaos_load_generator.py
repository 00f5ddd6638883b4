"""The desk of a trial: what it submits it also has ended."""

import math
from types import SimpleNamespace
from typing import Any

from outlast import receive, workflow
from outlast.testing import App
from outlast.tools.chaos.load_generator import LoadGenerator


@workflow
async def endless() -> None:
    await receive("never")


def test_run_acknowledged_while_the_desk_closes_is_cancelled():
    """Else it never ends, and the trial says after all its time that the store has lost it."""

    async def main(app: App) -> None:
        work: Any = SimpleNamespace(seed=1)
        load = LoadGenerator("", work, rate=1.0, under_way_max=1)
        for id in ("before", "meanwhile"):
            await app.submit(endless(), id=id)
        load._to_cancel["before"] = math.inf
        load.close()
        load._to_cancel["meanwhile"] = math.inf  # it had looked at the time before
        await load._cancel(app)
        assert {run.id: run.status for run in await app.runs()} == dict.fromkeys(
            ("before", "meanwhile"), "cancelled"
        )
        assert (load._to_cancel, load.wrong) == ({}, [])

    App().do(main)
