"""Run a fleet of workers on Postgres: some processes submit, others execute.

pip install 'outlast[postgres]'
export OUTLAST_STORE=postgresql://user:password@host/database
outlast worker examples/fleet.py --concurrency 4 &      # the first worker
outlast worker examples/fleet.py --concurrency 4 &      # the second, on any machine
python examples/fleet.py 20                             # submits 20 reports and waits for them
outlast workers

Kill -9 a worker, and the other one continues its reports from their last recorded steps. For a
rolling restart, send SIGTERM to one worker, start another, and so on: no step runs twice. You can
start the submitter again at any time, because the same ids are the same reports.
"""

import asyncio
import os
import sys
from pathlib import Path

from outlast import KEY, Happened, Outlast, effect, step, workflow

MAILS = Path("mails.txt")  # stands for the mail server, which can be asked


def say(*words: object) -> None:
    print(os.getpid(), *words, flush=True)


@step(retries=3)
async def collect(city: str) -> list[str]:
    say("collects", city)
    await asyncio.sleep(0.4)
    return [f"{what} of {city}" for what in ("streets", "bridges")]


@step(retries=3)
async def write(parts: list[str]) -> str:
    say("writes", *parts)
    await asyncio.sleep(0.4)
    return " and ".join(parts)


@effect(timeout=2)
async def mail(report: str, *, key: str = KEY) -> str:
    with MAILS.open("a") as mails:
        mails.write(f"{key} {report}\n")
    say("mails", report)
    await asyncio.sleep(0.2)  # sent, but not recorded yet
    return f"sent: {report}"


@mail.verify
async def was_sent(report: str, *, key: str = KEY) -> Happened[str] | None:
    return Happened(f"sent: {report}") if MAILS.exists() and key in MAILS.read_text() else None


@workflow
async def report(city: str) -> str:
    return await mail(await write(await collect(city)))


async def main(count: int) -> None:
    ids = [f"city-{number}" for number in range(1, count + 1)]
    async with Outlast() as app:
        # One commit: all of them or none.
        runs = await app.submit_many([report(id) for id in ids], ids=ids)
        print("submitted", len(runs), flush=True)
        for run in runs:
            print(await run.result(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
