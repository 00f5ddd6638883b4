"""Kill workers by a run, child or item: it becomes a dead letter and harms no other run."""

import pytest
from fleet_flows import gated, may_strike, one_step, parent
from fleet_tools import Fleet, assert_nothing_recorded_was_redone
from process_tools import Program

from outlast import RunDead
from support.waiting import WAIT_SECONDS, wait_until

HEALTHY = 19
FLOWS = ("may_strike", "one_step", "parent")


def live_through(fleet: Fleet, **options) -> int:
    """Replace dead workers until everything has ended. Return how many died."""
    died = 0

    def has_ended() -> bool:
        nonlocal died
        ended = fleet.all_are("done", "dead")
        died += fleet.replace_the_dead(*FLOWS, **options)
        return ended

    fleet.wait_until(has_ended)
    return died


def settle_hooks(fleet: Fleet) -> None:
    """Close every worker, so all hooks have been called."""
    for worker in fleet.workers:
        fleet.end(fleet.is_up(worker))


def make_dead_letter(fleet: Fleet, healthy: int) -> int:
    """Submit a poison run among others that a worker can hold at once. Return how many workers it killed."""
    fleet.make("poison")
    poison = healthy // 2
    calls = [may_strike("poison" if n == poison else "no such file") for n in range(healthy + 1)]
    fleet.submit(calls, ["poison" if n == poison else f"r{n}" for n in range(healthy + 1)])
    for _ in range(2):
        fleet.start(*FLOWS, concurrency=20)
    died = live_through(fleet, concurrency=20)
    assert fleet.statuses() == {"done": healthy, "dead": 1}
    assert fleet.status("poison") == "dead"
    return died


def test_poison_run_among_twenty_is_a_dead_letter_and_the_others_end(fleet):
    died = make_dead_letter(fleet, HEALTHY)
    settle_hooks(fleet)
    left = fleet.image()
    assert_nothing_recorded_was_redone(left, fleet.log.update())
    history = left.journals["poison"]
    assert [entry["kind"] for entry in history] == ["death"] * died
    assert died >= 3, "max_attempts is 3"
    assert left.runs["poison"]["deaths"] == died
    assert "died 3 times in a row" in left.runs["poison"]["reason"]
    assert {run["value"] for id, run in left.runs.items() if id != "poison"} == {'"survived"'}
    assert fleet.hooks("dead") == ["poison"], "the hook is called once, for no other run"

    async def look(app):
        (info,) = await app.runs(status="dead")
        with pytest.raises(RunDead):
            await app.result("poison")
        return info.id, info.deaths

    assert fleet.do(look) == ("poison", died)


def test_dead_letter_retried_without_the_poison_ends(fleet):
    died = make_dead_letter(fleet, 3)
    (fleet.folder / "poison").unlink()

    async def retry(app):
        await app.retry("poison")
        return await app.get(may_strike, "poison").result(timeout=WAIT_SECONDS)

    assert fleet.do(retry) == "survived"
    kinds = fleet.image().kinds("poison")
    assert kinds == ["death"] * died + ["retry", "step"]


def test_cancelled_dead_letter_that_is_retried_is_a_dead_letter_again(fleet):
    make_dead_letter(fleet, 3)
    assert fleet.do(lambda app: app.cancel("poison", "nobody wants it")) == "cancelled"
    assert fleet.status("poison") == "cancelled"
    fleet.do(lambda app: app.retry("poison"))
    again = live_through(fleet, concurrency=20)
    assert fleet.status("poison") == "dead"
    assert again == 3, "its count of deaths starts at zero"


def test_poison_child_is_a_dead_letter_and_its_parent_gets_run_dead(fleet):
    fleet.make("poison")
    fleet.submit(
        [parent("poison"), *(one_step(n, 0.1) for n in range(10))], ["p", *map(str, range(10))]
    )
    for _ in range(2):
        fleet.start(*FLOWS, concurrency=20)
    live_through(fleet, concurrency=20)
    settle_hooks(fleet)
    left = fleet.image()
    (child,) = [id for id, run in left.runs.items() if run["parent"] == "p"]
    assert left.runs[child]["status"] == "dead"
    assert left.runs["p"]["value"] == f'"1 {child} is dead 2"'
    assert {run["status"] for id, run in left.runs.items() if id != child} == {"done"}
    assert fleet.hooks("dead") == [child]
    assert_nothing_recorded_was_redone(left, fleet.log.update())
    assert [line.key for line in fleet.lines() if line.run == "p"].count("add#1") == 1


def test_suspect_executes_alone_so_its_death_charges_no_other_run(fleet):
    """New work is submitted while the suspect executes; its worker does not claim it."""
    fleet.make("poison")
    fleet.submit([may_strike("poison", late=0.4)], ["poison"])
    options = {"concurrency": 5, "suspect_patience": 60.0}
    fleet.start(*FLOWS, **options).wait()
    fleet.replace_the_dead(*FLOWS, **options)
    fleet.workers[0].wait()
    fleet.replace_the_dead(*FLOWS, **options)
    wait_until(lambda: len(fleet.lines()) == 3)
    fleet.submit([one_step(n) for n in range(5)], [f"r{n}" for n in range(5)])
    died = 2 + live_through(fleet, **options)
    deaths = fleet.image().deaths()
    assert {run for run, _ in deaths} == {"poison"}
    assert died == len(deaths) == 3


@pytest.mark.parametrize("what", ["run", "item"])
def test_everything_a_killed_worker_held_begins_on_another_at_once(fleet, what):
    """Nothing was recorded. No run ends before the gate exists, so none waits for the end of another."""
    options = {"concurrency": 20, "consume": {"mail": "handle"}}
    ids = [f"r{n}" for n in range(10)]
    victim = fleet.start("gated", **options)
    if what == "run":
        fleet.submit([gated("gate") for _ in ids], ids)
    else:
        fleet.do(lambda app: app.queue("mail").put_many(["gated"] * len(ids), ids=ids))
    wait_until(lambda: len(fleet.lines(pid=victim.pid)) == len(ids))
    successor = fleet.is_up(fleet.start("gated", **options))
    victim.kill()
    wait_until(lambda: len(fleet.lines(pid=successor.pid)) == len(ids))
    assert fleet.lines("after") == []
    fleet.make("gate")
    fleet.until_all_are("done")
    assert sorted(line.run for line in fleet.lines("after")) == ids
    assert {row for (row,) in fleet.ask("SELECT deaths FROM runs")} == {1}


def killed_and_replaced(fleet: Fleet, first: Program, *flows: str, **options) -> Program:
    """Kill a worker that executes something. Return another worker that executes it again."""
    wait_until(lambda: fleet.lines(pid=first.pid))
    first.kill()
    successor = fleet.is_up(fleet.start(*flows, **options))
    wait_until(lambda: fleet.lines(pid=successor.pid))
    return successor


@pytest.mark.parametrize("what", ["run", "item"])
def test_suspect_gets_its_turn_while_all_workers_are_busy(fleet, what):
    """Its workers died while it executed; the other one has work for minutes."""
    consume = {"consume": {"mail": "handle"}}
    first = fleet.start("gated", queues="special", **consume)
    if what == "run":
        fleet.submit([gated("gate")], ["suspect"], queue="special")
    else:
        fleet.do(lambda app: app.queue("mail").put("gated", id="suspect"))
    victim = killed_and_replaced(fleet, first, "gated", queues="special", **consume)
    busy = fleet.is_up(
        fleet.start("gated", "one_step", queues="default,special", concurrency=3, **consume)
    )
    fleet.submit(
        [one_step(n, 0.2 + n % 5 * 0.1) for n in range(400)], [f"r{n}" for n in range(400)]
    )
    wait_until(lambda: fleet.lines(pid=busy.pid))
    victim.kill()
    fleet.make("gate")
    wait_until(lambda: [line for line in fleet.lines("after") if line.run == "suspect"])
    assert fleet.ask("SELECT 1 FROM runs WHERE status = 'queued'"), "the others are not done yet"
    done = len(fleet.lines("after"))
    wait_until(lambda: len(fleet.lines("after")) > done + 3)


def test_suspect_item_gets_its_turn_where_all_processes_only_consume(fleet):
    options = {"consume": {"mail": "handle"}, "worker": False, "concurrency": 3}
    first = fleet.start("one_step", **options)
    fleet.do(lambda app: app.queue("mail").put("gated", id="suspect"))
    victim = killed_and_replaced(fleet, first, "one_step", **options)
    victim.pause()
    busy = fleet.is_up(fleet.start("one_step", **options))
    fleet.do(lambda app: app.queue("mail").put_many(["slow"] * 400))
    wait_until(lambda: fleet.lines(pid=busy.pid))
    victim.kill()
    fleet.make("gate")
    wait_until(lambda: [line for line in fleet.lines("after") if line.run == "suspect"])
    assert fleet.ask("SELECT 1 FROM runs WHERE status = 'queued'"), "the others are not done yet"


def test_poison_item_among_twenty_is_a_dead_letter_and_the_others_end(fleet):
    fleet.make("poison")
    payloads = ["poison" if n == 10 else n for n in range(HEALTHY + 1)]
    ids = ["poison" if n == 10 else f"i{n}" for n in range(HEALTHY + 1)]
    fleet.do(lambda app: app.queue("mail").put_many(payloads, ids=ids))
    options = {"concurrency": 20, "consume": {"mail": "handle"}}
    for _ in range(2):
        fleet.start(*FLOWS, **options)
    live_through(fleet, **options)
    settle_hooks(fleet)
    assert fleet.status("mail/poison") == "dead"
    assert fleet.hooks("dead") == ["mail/poison"]
    ended = [line.run for line in fleet.lines("after")]
    assert sorted(ended) == sorted(set(ids) - {"poison"}), "each is handled to its end once"

    async def retry(app):
        (info,) = await app.runs(items=True, status="dead")
        await app.retry(info.id)
        item = await app.queue("mail").claim(wait=WAIT_SECONDS)
        found = (item.id, item.payload)
        await item.ack()
        return found, await app.queue("mail").size()

    assert fleet.do(retry) == (("poison", "poison"), 0)
