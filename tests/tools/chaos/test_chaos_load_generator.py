"""The load generator of an experiment ends what it submits."""

import math
from types import SimpleNamespace
from typing import Any

from outlast import receive, workflow
from outlast.testing import App
from outlast.tools.chaos.load_generator import LoadGenerator


@workflow
async def endless() -> None:
    await receive("never")


def test_run_acknowledged_while_the_generator_closes_is_cancelled():
    """Otherwise it never ends, and the experiment reports it as lost."""

    async def main(app: App) -> None:
        work: Any = SimpleNamespace(seed=1)
        load = LoadGenerator("", work, rate=1.0, under_way_max=1)
        for id in ("before", "meanwhile"):
            await app.submit(endless(), id=id)
        load.cancellations.due["before"] = math.inf
        load.close()
        load.cancellations.due["meanwhile"] = math.inf  # it had looked at the time before
        await load.cancel_due(app)
        assert {run.id: run.status for run in await app.runs()} == dict.fromkeys(
            ("before", "meanwhile"), "cancelled"
        )
        assert (load.cancellations.due, load.cancellations.wrong) == ({}, [])

    App().do(main)
