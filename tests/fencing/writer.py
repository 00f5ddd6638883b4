"""`writer.py FOLDER SQLITE POSTGRES REDIS HTTP RUN`: a run whose one step waits for the file `go-PID`, then writes to each system."""

import asyncio
import os
import sqlite3
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import psycopg
import redis

from outlast import Outlast, StaleFence, current, fencing, step, workflow

folder, sqlite_path, postgres_url, redis_url, http_url, run_id = sys.argv[1:]
ME = str(os.getpid())


def say(what):
    with Path(folder, "lines").open("a") as lines:
        lines.write(f"{ME} {current().fence} {what}\n")


def to_sqlite():
    with closing(sqlite3.connect(sqlite_path)) as db, db:
        fencing.guard_sql(db)
        db.execute("INSERT INTO notes VALUES (?)", [ME])


def to_postgres():
    with psycopg.connect(postgres_url) as db:
        fencing.guard_sql(db)
        db.execute("INSERT INTO notes VALUES (%s)", [ME])


def to_redis():
    with redis.Redis.from_url(redis_url) as client:
        fencing.guard_redis(client, "RPUSH", f"{{{run_id}}}:notes", ME)


def to_http():
    request = urllib.request.Request(
        f"{http_url}/{run_id}", data=ME.encode(), headers=fencing.fence_headers(), method="PUT"
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@step
def write() -> None:
    say("waits")
    while not Path(folder, f"go-{ME}").exists():
        time.sleep(0.005)
    for name, act in (("sqlite", to_sqlite), ("postgres", to_postgres), ("redis", to_redis)):
        try:
            act()
            say(f"{name} wrote")
        except StaleFence:
            say(f"{name} refused")
    say(f"http {to_http()}")


@workflow
async def flow() -> None:
    await write.aio()


async def main() -> None:
    async with Outlast(f"sqlite:///{folder}/outlast.db", lease=2, heartbeat=0.2) as app:
        await (await app.start(flow(), id=run_id)).result()


asyncio.run(main())
