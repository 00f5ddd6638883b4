"""A checkpoint remembers where a script without a workflow was."""

from itertools import pairwise

import pytest

from outlast import BadName, LimitExceeded, SettingsError, checkpoint, session, workflow
from support.processes import Program


def within(world, action, id="task", **options):
    async def main(app):
        return await action(app.checkpoint(id, **options))

    return world.do(main)


def test_saved_fields_survive_a_restart(world):
    assert within(world, lambda c: c.save(page=3, seen=["a"])) is None
    within(world, lambda c: c.save(page=4))
    world.restart()
    assert within(world, lambda c: c.get("page")) == 4
    assert within(world, lambda c: c.get("page", 0, type=int)) == 4
    assert within(world, lambda c: c.get("none", "default")) == "default"
    assert within(world, lambda c: c.get()) == {"page": 4, "seen": ["a"]}


def test_step_is_done_when_it_was_marked(world):
    assert within(world, lambda c: c.done("fetch")) is False
    assert within(world, lambda c: c.mark("fetch")) is None
    assert within(world, lambda c: c.done("fetch")) is True
    within(world, lambda c: c.mark("count", 7))
    assert within(world, lambda c: c.result("count", type=int)) == 7
    assert within(world, lambda c: c.result("fetch", "default")) is None
    assert within(world, lambda c: c.result("other", "default")) == "default"


def test_step_and_field_of_one_name_are_separate(world):
    within(world, lambda c: c.save(fetch="field"))
    assert within(world, lambda c: c.done("fetch")) is False
    within(world, lambda c: c.mark("fetch", "step"))
    assert within(world, lambda c: c.get("fetch")) == "field"
    assert within(world, lambda c: c.get()) == {"fetch": "field"}
    for bad in (lambda c: c.save(**{"done:x": 1}), lambda c: c.get("done:x")):
        with pytest.raises(BadName, match="mark"):
            within(world, bad)


def test_clear_removes_everything(world):
    within(world, lambda c: c.save(a=1))
    within(world, lambda c: c.mark("x"))
    within(world, lambda c: c.clear())
    assert within(world, lambda c: c.get()) == {}
    assert within(world, lambda c: c.done("x")) is False


def test_checkpoint_and_session_of_one_id_are_separate(world):
    within(world, lambda c: c.save(a=1))

    async def main(app):
        await app.session("task").set("a", 2)
        await app.session("task").clear()
        return await app.sessions()

    assert world.do(main) == []
    assert within(world, lambda c: c.get("a")) == 1


def test_checkpoint_expires_only_with_a_ttl(world):
    within(world, lambda c: c.save(a=1))
    within(world, lambda c: c.save(a=1), id="short", ttl=10)
    world.clock.advance(1e8)
    assert within(world, lambda c: c.get("a")) == 1
    assert within(world, lambda c: c.get("a"), id="short", ttl=10) is None


def test_invalid_calls_are_refused(world):
    with pytest.raises(BadName, match="checkpoint id"):
        world.app.checkpoint("")
    with pytest.raises(SettingsError, match="ttl"):
        world.app.checkpoint("x", ttl=0)
    for bad in (
        lambda c: c.mark(""),
        lambda c: c.done(""),
        lambda c: c.mark(7),
        lambda c: c.mark("a\nb"),
    ):
        with pytest.raises(BadName):
            within(world, bad)
    with pytest.raises(ValueError, match="save"):
        within(world, lambda c: c.save())
    with pytest.raises(LimitExceeded, match="name_length_max"):
        within(world, lambda c: c.mark("x" * 200))
    assert within(world, lambda c: c.get()) == {}


def test_checkpoint_calls_in_a_run_are_recorded(world):
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
import sys
from outlast.sync import Outlast

with Outlast(sys.argv[1], signals=0) as app:
    task = app.checkpoint("count")
    for n in range(task.get("next", 0), int(sys.argv[2])):
        print(n, flush=True)
        task.save(next=n + 1)
    print("done", task.get("next"), flush=True)
"""


def test_killed_script_repeats_at_most_one_item(tmp_path):
    address, said = f"sqlite:///{tmp_path}/outlast.db", []
    for life in range(3):
        program = Program.python("-c", SCRIPT, address, 1_000_000, folder=tmp_path)
        with program:
            program.wait_until(lambda: len(program.lines) > 10 + life)
        said.append(program.lines)
    last = Program.python("-c", SCRIPT, address, int(said[-1][-1]) + 5, folder=tmp_path)
    with last:
        assert last.wait() == 0, last.describe()
    said.append(last.lines)
    for before, after in pairwise(said):
        # The item that was printed last may not have been saved; the one before it was.
        assert int(after[0]) - int(before[-1]) in (0, 1)
    assert said[-1][-1] == f"done {int(said[-2][-1]) + 5}"
