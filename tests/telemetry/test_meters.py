"""What a process counts is what happened, and no more of it than it may."""

import asyncio

import pytest

from outlast import Conflict, compensate_with, current, effect, receive, step, workflow
from outlast.errors import StoreBroken
from outlast.store.commands import FENCE, STATUS, Refused
from outlast.store.commit_metrics import Commits
from outlast.telemetry import names
from outlast.telemetry.meters import Counter, Histogram, buckets, merged

FAILING: set[str] = set()


@step
async def inner(text: str) -> str:
    await asyncio.sleep(0.2)
    return text


@step
async def plain(text: str) -> str:
    current().cost(tokens=100)
    await asyncio.sleep(1)
    return await inner(text)


@step(retries=2, backoff=0.01)
async def shaky() -> str:
    if current().attempt < 3:
        raise ConnectionError("again")
    return "at last"


@step
async def broken() -> None:
    raise ValueError("no")


@effect(timeout=5)
async def charge(cents: int) -> str:
    return f"charged {cents}"


@charge.compensate
async def refund(result: str) -> None:
    if "refund" in FAILING:
        raise ConnectionError("the bank is closed")


@workflow
async def child() -> str:
    return await plain("child")


@workflow
async def everything() -> str:
    await plain("a")
    await shaky()
    await child()
    await charge(5)
    return "done"


@workflow
async def two() -> str:
    return await plain("a") + await plain("b")


@workflow
async def fails() -> None:
    await charge(7)
    await compensate_with(refund, "of the workflow's own")
    await broken()


@workflow
async def cancels() -> None:
    task = asyncio.ensure_future(plain("b"))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])


def numbers(app, name: str) -> dict[tuple[str, ...], float]:
    """Of a counter or a gauge by its labels' values; of a histogram how many there were."""
    return {
        tuple(one.labels.values()): one.buckets[-1][1] if one.kind == "histogram" else one.value
        for one in app.status_provider.samples()
        if one.name == name
    }


def after(world, *calls, then=()):
    async def main(app):
        for number, call in enumerate(calls):
            run = await app.start(call, id=f"run-{number}")
            await app._open.runs.wait_until_ended(run.id)
        await asyncio.sleep(0.01)  # hooks
        return {metric.name: numbers(app, metric.name) for metric in names.METRICS}

    return world.do(main)


@pytest.fixture(autouse=True)
def _mended():
    FAILING.clear()


def test_steps_are_counted_by_kind_and_outcome(world):
    found = after(world, everything(), fails(), cancels())
    assert found["outlast_steps_total"] == {
        ("everything", "plain", "step", "done"): 1,
        ("everything", "inner", "inner", "done"): 1,
        ("everything", "shaky", "step", "retried"): 2,
        ("everything", "shaky", "step", "done"): 1,
        ("everything", "child", "child", "done"): 1,
        ("everything", "charge", "effect", "done"): 1,
        ("child", "plain", "step", "done"): 1,
        ("child", "inner", "inner", "done"): 1,
        ("fails", "charge", "effect", "done"): 1,
        ("fails", "broken", "step", "failed"): 1,
        ("fails", "refund", "effect", "done"): 2,
        ("cancels", "plain", "step", "cancelled"): 1,
    }
    assert found["outlast_step_seconds"]["everything", "plain"] == 1
    assert found["outlast_step_seconds"]["everything", "shaky"] == 1, "attempts that succeeded"
    assert ("fails", "broken") not in found["outlast_step_seconds"]
    assert found["outlast_runs_total"] == {
        ("everything", "done"): 1,
        ("child", "done"): 1,
        ("fails", "undoing"): 1,
        ("fails", "failed"): 1,
        ("cancels", "done"): 1,
    }
    assert found["outlast_compensations_total"] == {
        ("registered",): 3,
        ("done",): 2,
        ("failed",): 0,
    }
    assert found["outlast_parked_total"] == {}


def test_step_duration_is_in_the_right_bucket(world):
    async def main(app):
        await (await app.start(everything(), id="run")).result()
        return [one for one in app.status_provider.samples() if one.name == "outlast_step_seconds"]

    (plain_took,) = [
        one for one in world.do(main) if one.labels == {"workflow": "everything", "step": "plain"}
    ]
    assert plain_took.value == pytest.approx(1.2, abs=0.01)
    assert dict(plain_took.buckets)["1.0"] == 0
    assert dict(plain_took.buckets)["2.5"] == dict(plain_took.buckets)["+Inf"] == 1


def test_failed_compensation_and_parked_run_are_counted(world):
    FAILING.add("refund")
    found = after(world, fails())
    assert found["outlast_compensations_total"]["failed",] == 1
    assert found["outlast_parked_total"] == {("default",): 1}
    assert found["outlast_runs_total"]["fails", "parked"] == 1


@effect(timeout=1)
async def send() -> str:
    await asyncio.sleep(1000)
    return "sent"


@workflow
async def sends() -> str:
    return await send()


def test_decided_effect_has_no_duration(world):
    assert after(world, sends())["outlast_parked_total"] == {("default",): 1}

    async def main(app):
        await app.decide("run-0", "send", happened="sent by hand")
        assert await (await app.start(sends(), id="run-0")).result() == "sent by hand"
        ends = {labels: count for labels, count in numbers(app, "outlast_steps_total").items() if "done" in labels}  # fmt: skip
        return (
            ends,
            numbers(app, "outlast_step_seconds"),
            list(app._open.services.steps.durations.fresh()),
        )

    assert world.do(main) == ({("sends", "send", "effect", "done"): 1}, {}, [])


@workflow
async def called_otherwise(name: str) -> None:
    try:
        await one_child(name)
    except Conflict:
        return


@workflow
async def one_child(name: str) -> None: ...


def test_child_that_cannot_start_counts_as_failed_step(world):
    async def main(app):
        other = await app.start(waits(), id="run/one_child#1")
        await (await app.start(called_otherwise("a"), id="run")).result()
        await app.cancel(other.id)
        return numbers(app, "outlast_steps_total")

    assert world.do(main) == {("called_otherwise", "one_child", "child", "failed"): 1}


def test_death_is_counted_by_the_worker_that_recovers_the_run(world):
    world.die(two(), id="run-0", after=1.3, gap=4.0)
    found = after(world, two())
    assert found["outlast_replayed_steps_total"] == {("two",): 1}
    assert found["outlast_recovery_seconds"] == {("interruption",): 0, ("death",): 1}
    assert found["outlast_deaths_total"] == {(): 1}
    assert found["outlast_cost_saved_total"] == {("tokens",): 100}
    assert found["outlast_steps_total"]["two", "plain", "step", "done"] == 1, "the second one"


def test_drained_run_is_counted_as_interruption(world):
    async def begin(app):
        await app.start(two(), id="run-0")
        await asyncio.sleep(1.3)
        await app.drain("test")
        return numbers(app, "outlast_runs_total"), numbers(app, "outlast_recovery_seconds")

    assert world.do(begin) == ({("two", "released"): 1}, {("interruption",): 0, ("death",): 0})
    world.restart(after=7.0)
    found = after(world, two())
    assert found["outlast_recovery_seconds"] == {("interruption",): 1, ("death",): 0}
    assert found["outlast_deaths_total"] == {(): 0}


@workflow
async def waits() -> str:
    return await receive("word", str)


def test_woken_run_does_not_count_as_recovered(world):
    world.die(waits(), after=0.1, gap=1.0)  # the only entry of its journal: a death

    async def taken_up(app):
        await app.start(waits(), id="run")
        await asyncio.sleep(5)
        await app.drain("test")
        return numbers(app, "outlast_recovery_seconds")["death",], numbers(
            app, "outlast_runs_total"
        )

    assert world.do(taken_up) == (1, {("waits", "waiting"): 1})
    world.restart(after=5 * 3600.0)

    async def woken(app):
        run = await app.start(waits(), id="run")
        await app.send("run", "word", "now")
        await run.result()
        return numbers(app, "outlast_recovery_seconds")

    assert world.do(woken) == {("interruption",): 0, ("death",): 0}


def test_items_are_counted_by_outcome(world):
    async def main(app):
        queue = app.queue("mail")
        await queue.put_many(["a", "b", "c", "d"], ids=["a", "b", "c", "d"])

        async def handle(item):
            if item.id == "a":
                raise ValueError("no")
            if item.id == "d":
                await asyncio.sleep(1000)

        consuming = asyncio.ensure_future(queue.consume(handle, concurrency=4))
        await asyncio.sleep(0.5)
        consuming.cancel()
        await asyncio.wait([consuming])
        await asyncio.sleep(0.5)
        return numbers(app, "outlast_items_total")

    ends = world.do(main)
    assert ends["mail", "acked"] == 2
    assert ends["mail", "nacked"] >= 1
    assert ends["mail", "given_back"] == 1


def test_manually_acked_item_is_counted(world):
    async def main(app):
        await app.queue("mail").put("a")
        await (await app.queue("mail").claim()).ack()
        return numbers(app, "outlast_items_total")

    assert world.do(main) == {("mail", "acked"): 1}


def test_item_acked_twice_is_counted_once(world):
    async def main(app):
        await app.queue("mail").put("a")
        item = await app.queue("mail").claim()
        await item.ack()
        await item.ack()
        return numbers(app, "outlast_items_total")

    assert world.do(main) == {("mail", "acked"): 1}


def test_consumed_queue_starts_with_zero_counters(world):
    async def main(app):
        consuming = asyncio.ensure_future(app.queue("mail").consume(print))
        await asyncio.sleep(0.1)
        consuming.cancel()
        await asyncio.wait([consuming])
        return numbers(app, "outlast_dead_letters_total")

    assert world.do(main) == {("mail",): 0}, "one that is born with its value has no rise"


def test_dead_letter_is_counted_by_its_worker(world):
    async def main(app):
        await app.queue("mail").put("a")
        await (await app.queue("mail").claim()).nack(delay=0)
        await asyncio.sleep(0.1)
        return numbers(app, "outlast_dead_letters_total"), numbers(app, "outlast_items_total")

    world.settings = {"max_attempts": 1}
    assert world.do(main) == ({("mail",): 1}, {("mail", "nacked"): 1})


def test_disabled_metrics_count_and_export_nothing(world):
    world.settings = {"metrics": 0}

    async def main(app):
        await (await app.start(everything(), id="run")).result()
        app.status_provider.refresh()
        return (
            list(app.status_provider.samples()),
            app._open.services.metrics.steps.counts,
            app._open.writer.commits,
        )

    assert world.do(main) == ([], {}, ())


# -- bounds


def test_label_sets_over_the_limit_are_combined():
    counter = Counter(names.STEPS, count_max=3)
    for _ in range(2):
        for number in range(1000):
            counter.add((f"flow-{number}", "step", "step", "done"))
            counter.add((f"flow-{number}", "step", "step", "failed"))
    assert set(counter.counts) == {
        ("flow-0", "step", "step", "done"), ("flow-0", "step", "step", "failed"), ("flow-1", "step", "step", "done"),
        ("other", "other", "step", "failed"), ("other", "other", "step", "done"),
    }  # fmt: skip
    assert counter.counts["flow-1", "step", "step", "done"] == 2
    assert sum(counter.counts.values()) == 4000


def test_histogram_has_a_lower_label_limit():
    histogram = Histogram(names.STEP_SECONDS, 500)
    for number in range(1000):
        histogram.add((f"flow-{number}", "step"), 0.1)
    assert len(histogram.counts) == 101
    assert histogram.counts["other", "other"][4] == 900


def test_fixed_labels_are_never_combined():
    counter = Counter(names.COMPENSATIONS, count_max=1)
    counter.add(("done",))
    assert counter.counts == {("registered",): 0, ("done",): 1, ("failed",): 0}


# -- commits


def test_commit_metrics_count_verbs_and_stale_fences():
    commits = Commits()
    commits.add([None, Refused(FENCE), Refused(STATUS)], 0.0007)
    commits.add([None], 3.0)
    commits.failed("unknown")
    commands, total = buckets(names.COMMIT_VERBS, merged([commits.commands])[()])
    assert (dict(commands)["1.0"], dict(commands)["5.0"], dict(commands)["+Inf"], total) == (
        1,
        2,
        2,
        4,
    )
    seconds, _ = buckets(names.COMMIT_SECONDS_TAKEN, merged([commits.seconds, commits.seconds])[()])
    assert (dict(seconds)["0.001"], dict(seconds)["+Inf"]) == (2, 4), "of two threads: their sums"
    assert (commits.stale, commits.failures.counts["unknown",]) == (1, 1)


def test_value_on_a_bucket_bound_is_inside_it():
    histogram = Histogram(names.RECOVERY)
    histogram.add(("death",), 0.5)
    found, _ = buckets(names.RECOVERY, histogram.counts["death",])
    assert (dict(found)["0.25"], dict(found)["0.5"]) == (0, 1)


def test_unknown_commits_are_counted(world):
    from outlast.store.protocol import CommitUnknown

    async def main(app):
        real, fails = app.store.commit, [CommitUnknown("gone"), CommitUnknown("gone")]

        def commit(commands):
            if fails:
                raise fails.pop()
            return real(commands)

        app.store.commit = commit
        try:
            await (await app.start(child(), id="run")).result()
        finally:
            app.store.commit = real
        return numbers(app, "outlast_commit_failures_total")

    assert world.do(main)["unknown",] == 2


def test_broken_store_is_counted(world):
    async def main(app):
        real = app.store.commit

        def broken(_):
            raise StoreBroken("its file is damaged")

        app.store.commit = broken
        try:
            with pytest.raises(StoreBroken):
                await app.start(child(), id="run")
        finally:
            app.store.commit = real
        return numbers(app, "outlast_commit_failures_total")

    assert world.do(main)["fault",] == 1
