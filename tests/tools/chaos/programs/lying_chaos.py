"""Try an effect that says it is idempotent and is not: `lying_chaos.py FOLDER` prints the report."""

import json
import sys
from pathlib import Path

from outlast import KEY, effect, workflow
from outlast.tools.chaos.experiment import Experiment
from outlast.tools.chaos.ledger_client import ask
from outlast.tools.chaos.options import Options
from outlast.tools.chaos.report import document
from outlast.tools.chaos.view import View
from outlast.tools.chaos.work import Work


@effect(timeout=5, idempotent=True, undo=None, backoff=0.01)
async def pay(number: int, key: str = KEY) -> None:
    await ask("act", key, fault="cut")


@workflow
async def lying(number: int) -> None:
    await pay(number)


if __name__ == "__main__":
    options = Options(
        seed=1,
        seconds=1.0,
        workers=1,
        rate=4.0,
        per_minute=0.0,
        settle=480.0,
        modules=(__file__,),
        demo=True,
    )
    outcome = Experiment(options, Work(1, [(lying, [1])]), Path(sys.argv[1]), View()).run()
    print(json.dumps(document(outcome)))
