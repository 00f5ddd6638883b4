"""Checkpoints: where a script was, for one without a workflow."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from outlast import BadName, LimitExceeded, SettingsError, checkpoint, session, workflow


def within(world, action, id="task", **options):
    async def main(app):
        return await action(app.checkpoint(id, **options))

    return world.do(main)


def test_what_was_saved_is_there_for_the_next_process(world):
    assert within(world, lambda c: c.save(page=3, seen=["a"])) is None
    within(world, lambda c: c.save(page=4))
    world.restart()
    assert within(world, lambda c: c.get("page")) == 4
    assert within(world, lambda c: c.get("page", 0, type=int)) == 4
    assert within(world, lambda c: c.get("none", "default")) == "default"
    assert within(world, lambda c: c.get()) == {"page": 4, "seen": ["a"]}


def test_a_step_is_done_when_it_was_marked(world):
    assert within(world, lambda c: c.done("fetch")) is False
    assert within(world, lambda c: c.mark("fetch")) is None
    assert within(world, lambda c: c.done("fetch")) is True
    within(world, lambda c: c.mark("count", 7))
    assert within(world, lambda c: c.result("count", type=int)) == 7
    assert within(world, lambda c: c.result("fetch", "default")) is None
    assert within(world, lambda c: c.result("other", "default")) == "default"


def test_steps_and_fields_of_one_name_are_two(world):
    within(world, lambda c: c.save(fetch="field"))
    assert within(world, lambda c: c.done("fetch")) is False
    within(world, lambda c: c.mark("fetch", "step"))
    assert within(world, lambda c: c.get("fetch")) == "field"
    assert within(world, lambda c: c.get()) == {"fetch": "field"}
    for bad in (lambda c: c.save(**{"done:x": 1}), lambda c: c.get("done:x")):
        with pytest.raises(BadName, match="mark"):
            within(world, bad)


def test_clear_forgets_all_of_it(world):
    within(world, lambda c: c.save(a=1))
    within(world, lambda c: c.mark("x"))
    within(world, lambda c: c.clear())
    assert within(world, lambda c: c.get()) == {}
    assert within(world, lambda c: c.done("x")) is False


def test_a_checkpoint_and_a_session_of_one_id_are_two(world):
    within(world, lambda c: c.save(a=1))

    async def main(app):
        await app.session("task").set("a", 2)
        await app.session("task").clear()
        return await app.sessions()

    assert world.do(main) == []
    assert within(world, lambda c: c.get("a")) == 1


def test_it_never_expires_unless_that_is_said(world):
    within(world, lambda c: c.save(a=1))
    within(world, lambda c: c.save(a=1), id="short", ttl=10)
    world.clock.advance(1e8)
    assert within(world, lambda c: c.get("a")) == 1
    assert within(world, lambda c: c.get("a"), id="short", ttl=10) is None


def test_what_makes_no_sense_is_refused(world):
    with pytest.raises(BadName, match="checkpoint id"):
        world.app.checkpoint("")
    with pytest.raises(SettingsError, match="ttl"):
        world.app.checkpoint("x", ttl=0)
    for bad in (lambda c: c.mark(""), lambda c: c.done(""), lambda c: c.mark(7), lambda c: c.mark("a\nb")):
        with pytest.raises(BadName):
            within(world, bad)
    with pytest.raises(ValueError, match="save"):
        within(world, lambda c: c.save())
    with pytest.raises(LimitExceeded, match="name_length_max"):
        within(world, lambda c: c.mark("x" * 200))
    assert within(world, lambda c: c.get()) == {}


def test_in_a_run_it_is_recorded_as_a_session_is(world):
    @workflow
    async def flow() -> list:
        task = checkpoint("task")
        await task.save(a=1)
        await task.mark("x", 2)
        await session("task").set("a", 3)
        return [await task.get(), await task.done("x"), await task.result("x"), await task.clear()]

    result = [{"a": 1}, True, 2, None]
    assert world.run(flow()) == result
    assert world.keys() == [
        "checkpoint.save#1", "checkpoint.mark#1", "session.set#1", "checkpoint.get#1", "checkpoint.done#1",
        "checkpoint.get#2", "checkpoint.clear#1",
    ]  # fmt: skip
    assert world.replays(flow()) == result


SCRIPT = """
import sys, time
from outlast.sync import Outlast

with Outlast(sys.argv[1], signals=0) as app:
    task = app.checkpoint("count")
    for n in range(task.get("next", 0), 400):
        print(n, flush=True)
        task.save(next=n + 1)
        time.sleep(0.002)
    print("done", task.get("next"), flush=True)
"""


def test_a_script_that_is_killed_again_and_again_repeats_at_most_the_item_it_was_at(tmp_path):
    address, said = f"sqlite:///{tmp_path}/outlast.db", []
    for life in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, address], stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if life < 3 and len(lines) == 40 + life:
                os.kill(process.pid, signal.SIGKILL)
                time.sleep(0.01)
        process.wait()
        process.stdout.close()
        said.append(lines)
    for before, after in pairwise(said):
        # What was said last may not have been saved yet; what came before it was.
        assert int(after[0]) - int(before[-1]) in (0, 1)
    assert said[-1][-1] == "done 400"
