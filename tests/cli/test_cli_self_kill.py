"""Workers that kill themselves: logged at start, after their first minute, never in a drain, and only if asked to."""

import asyncio
import random
import statistics
import threading
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.cli import self_kill
from support.processes import Program, clean_environment
from support.waiting import WAIT_SECONDS

WORKER = Path(__file__).with_name("self_killing_worker.py")
AGENT = """
from outlast import workflow

@workflow
async def report() -> None:
    pass
"""


def test_self_kill_never_comes_in_the_first_minute_and_comes_as_often_as_asked():
    dice = random.Random(1)
    seconds = [self_kill.seconds_until(dice, 60.0) - self_kill.FIRST_SECONDS for _ in range(2_000)]
    assert self_kill.FIRST_SECONDS == 60.0 and min(seconds) >= 0
    assert statistics.mean(seconds) == pytest.approx(60.0, rel=0.1)


def test_very_rare_self_kill_gets_the_longest_possible_wait():
    assert self_kill.seconds_until(random.Random(1), 1e-12) == threading.TIMEOUT_MAX


def test_worker_without_the_setting_never_kills_itself():
    async def main() -> None:
        async with Outlast("memory:", signals=0) as app:
            assert self_kill.schedule_self_kill(app) is None

    asyncio.run(main())


def test_draining_worker_does_not_kill_itself(monkeypatch):
    monkeypatch.setattr(self_kill, "FIRST_SECONDS", 0.0)
    killed = []

    async def main() -> None:
        async with Outlast(
            "memory:", signals=0, chaos_kills_per_hour=1e9, chaos_mode="kill"
        ) as app:
            self_kill._strike(
                app, asyncio.get_running_loop(), kill=True, end=lambda: killed.append("before")
            )
            await app.drain("enough")
            timer = self_kill.schedule_self_kill(app, end=lambda: killed.append("in a drain"))
            timer.join(WAIT_SECONDS)

    asyncio.run(main())
    assert killed == ["before"]


@pytest.mark.parametrize(
    ("mode", "code", "said"), [("drain", 0, "drains itself"), ("kill", 137, "kills itself")]
)
def test_worker_with_chaos_settings_kills_itself_and_logs_it(mode, code, said, tmp_path):
    env = clean_environment(OUTLAST_CHAOS_KILLS_PER_HOUR="1000000", OUTLAST_CHAOS_MODE=mode)
    (tmp_path / "agent.py").write_text(AGENT)
    words = ["worker", "agent.py", "--store", f"sqlite:///{tmp_path}/o.db", "--log", "text"]
    with Program.python(WORKER, *words, folder=tmp_path, env=env) as worker:
        assert worker.wait() == code, worker.describe()
    text = worker.output + worker.errors
    assert "kills itself at random, 1e+06 times an hour" in text and said in text
