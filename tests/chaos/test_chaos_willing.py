"""Workers that strike themselves: said at start, after their first minute, never in a drain, and only if asked to."""

import asyncio
import random
import statistics
import subprocess
import sys
import threading

import pytest
from chaos_tools import PROGRAMS, environ, until

from outlast import Outlast
from outlast.chaos import willing


def test_a_blow_never_falls_in_the_first_minute_and_comes_as_often_as_asked():
    dice = random.Random(1)
    seconds = [willing.seconds_until(dice, 60.0) - willing.FIRST_SECONDS for _ in range(2_000)]
    assert willing.FIRST_SECONDS == 60.0 and min(seconds) >= 0
    assert statistics.mean(seconds) == pytest.approx(60.0, rel=0.1)


def test_a_blow_in_a_million_years_is_waited_for():
    assert willing.seconds_until(random.Random(1), 1e-12) == threading.TIMEOUT_MAX


def test_who_is_not_asked_to_is_not_willing():
    async def main() -> None:
        async with Outlast("memory:", signals=0) as app:
            assert willing.willing(app) is None

    asyncio.run(main())


def test_a_worker_that_drains_is_left_alone(monkeypatch):
    monkeypatch.setattr(willing, "FIRST_SECONDS", 0.0)
    struck = []

    async def main() -> None:
        async with Outlast("memory:", signals=0, chaos_kills_per_hour=1e9, chaos_mode="kill") as app:
            willing._strike(app, asyncio.get_running_loop(), kill=True, end=lambda: struck.append("before"))
            await app.drain("enough")
            timer = willing.willing(app, end=lambda: struck.append("in a drain"))
            timer.join(5)

    asyncio.run(main())
    assert struck == ["before"]


@pytest.mark.parametrize(
    ("mode", "code", "said"), [("drain", 0, "drains itself"), ("kill", 137, "kills itself")]
)
def test_a_willing_worker_strikes_itself_and_says_so(mode, code, said, tmp_path):
    env = environ(OUTLAST_CHAOS_KILLS_PER_HOUR="1000000", OUTLAST_CHAOS_MODE=mode)
    words = ["worker", PROGRAMS / "user_flows.py", "--store", f"sqlite:///{tmp_path}/o.db", "--log", "text"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", PROGRAMS / "willing_worker.py", *words],
            env=env,
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    text = (tmp_path / "log").read_text()
    assert process.returncode == code, text
    assert "strikes itself at random, 1e+06 times an hour" in text and said in text
