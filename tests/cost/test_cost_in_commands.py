"""Costs in `outlast show`, `outlast drains`, drain reports and metrics."""

import asyncio
import json

import pytest

from outlast import current, receive, sleep, step, workflow
from outlast.cli import main as command
from outlast.codec.cost import UNITS_MAX
from outlast.shutdown.report import DrainReport
from outlast.store.commands import Record, RegisterWorker, Release, Submit
from outlast.store.rows import DrainRow
from outlast.testing import App


@step(retries=1, backoff=1)
async def model(tokens: int, seconds: float = 0.0, *, fails: bool = False) -> int:
    current().cost(tokens=tokens, usd=tokens / 1000)
    if fails and current().attempt == 1:
        raise OSError("busy")
    await asyncio.sleep(seconds)
    return tokens


@workflow(name="talk")
async def talk() -> int:
    return await model(1200) + await model(300, 10, fails=True)


@pytest.fixture
def outlast(file_world, monkeypatch, capsys):
    """The command line, on the store of the world."""
    monkeypatch.setenv("OUTLAST_STORE", f"sqlite:///{file_world.folder / 'world.db'}")

    def call(*words: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            command(words)
        out, err = capsys.readouterr()
        assert not exit.value.code, err
        return out

    return call


# -- show


def test_show_tells_what_each_step_cost_and_what_was_spent_and_saved(file_world, outlast):
    file_world.die(talk(), after=5)
    assert file_world.run(talk()) == 1500
    lines = outlast("show", "run").splitlines()
    (first,) = [line for line in lines if "model#1" in line]
    assert "ms, 1,200 tokens, 1.2 usd  1200" in first
    (failed,) = [line for line in lines if "attempt 1 failed" in line]
    assert "ms, 300 tokens, 0.3 usd: OSError: busy" in failed
    assert lines[-2] == "Spent 1,800 tokens, 1.8 usd."
    assert lines[-1].startswith("Saved 1,500 tokens, 1.5 usd: ")


def test_show_as_json_has_both_and_the_cost_of_each_entry(file_world, outlast):
    file_world.die(talk(), after=5)
    file_world.run(talk())
    document = json.loads(outlast("show", "run", "--json"))
    assert document["cost"] == {
        "spent": {"tokens": 1800, "usd": 1.8},
        "saved": {"tokens": 1500, "usd": 1.5},
    }
    assert [(entry["kind"], entry["cost"]) for entry in document["journal"]] == [
        ("step", {"tokens": 1200, "usd": 1.2}),
        ("attempt", {"tokens": 300, "usd": 0.3}),
        ("death", None),
        ("step", {"tokens": 300, "usd": 0.3}),
    ]


def test_of_a_run_without_costs_show_says_nothing_of_them(file_world, outlast):
    @workflow
    async def cheap() -> None:
        await sleep(1)

    file_world.run(cheap())
    shown = outlast("show", "run")
    assert "pent" not in shown
    assert json.loads(outlast("show", "run", "--json"))["cost"] == {"spent": {}, "saved": {}}


def test_show_survives_a_damaged_journal(file_world, outlast):
    store = file_world.store
    store.commit([RegisterWorker("w", "host", 1, 1e6)])
    (submitted,) = store.commit([Submit("run", "talk", "{}", "t", "00" * 16, worker="w")])
    row = submitted.row
    entries = [
        Record(
            row.pk,
            1,
            row.fence,
            "step",
            "a#1",
            row.created,
            value="1",
            seconds=1.0,
            cost='{"usd": 1}',
        ),
        Record(
            row.pk,
            2,
            row.fence,
            "step",
            "b#1",
            row.created,
            value="1",
            seconds=1.0,
            cost='{"\x1b[2J": 1}',
        ),
        Record(row.pk, 3, row.fence, "retry", "", row.created, value="not JSON"),
        Record(
            row.pk, 4, row.fence, "step", "c#1", row.created, value="1", seconds=1.0, cost="[[["
        ),
    ]
    store.commit([*entries, Release(row.pk, row.fence, "enough")])
    shown = outlast("show", "run")
    assert "\x1b" not in shown
    assert "Spent 1 usd." in shown
    assert "Saved 1 usd" in shown


# -- the drain report


@workflow(name="goes on")
async def goes_on() -> int:
    return await model(10) + await model(1, 5) + await model(1000)


@workflow(name="takes long")
async def takes_long() -> int:
    return await model(20) + await model(5000, 10_000)


@workflow(name="waits")
async def waits() -> str:
    await model(30)
    return await receive("go", str)


@workflow(name="ends")
async def ends() -> int:
    return await model(40) + await model(400, 5)


FLOWS = [goes_on, takes_long, waits, ends]


def test_the_report_has_what_is_on_record_of_the_runs_that_were_left(world):
    async def main(app):
        for flow in FLOWS:
            await app.start(flow(), id=flow.name)
        await asyncio.sleep(1)
        report = await app.drain("deploy")
        (stored,) = await app.drains()
        assert stored == report
        return report

    report = world.do(main)
    assert (report.released, report.checkpointed, report.waiting, report.completed) == (1, 1, 1, 1)
    tokens = (10 + 1) + 20 + 30  # neither what was under way, nor the run that ended
    assert report.cost == {"tokens": tokens, "usd": 0.061}
    assert json.loads(json.dumps(report.document()))["cost"] == report.cost


def test_cost_includes_earlier_executions(world):
    world.die(takes_long(), after=5)

    async def main(app):
        await app.start(takes_long(), id="run")
        await asyncio.sleep(1)
        return await app.drain("deploy")

    assert world.do(main).cost == {"tokens": 20, "usd": 0.02}


def test_without_costs_there_is_none_in_the_report():
    async def main(app):
        return await app.drain("deploy")

    report = App().do(main)
    assert report.cost == {}


def test_a_report_of_an_older_version_has_no_cost():
    row = DrainRow("w", "h", 1, "r", 0.0, 1.0, 0, '{"released": 1}', ())
    assert DrainReport.of(row).cost == {}


def test_outlast_drains_shows_costs(file_world, outlast):
    async def main(app):
        await app.start(takes_long(), id="run")
        await asyncio.sleep(1)
        return await app.drain("deploy")

    worker = file_world.do(main).worker
    head, line = outlast("drains", "--wide").splitlines()
    assert "COST" in head
    assert "20 tokens, 0.02 usd" in line
    assert "20 tokens, 0.02 usd recorded by" in outlast("drains", worker)
    assert json.loads(outlast("drains", worker, "--json"))["drain"]["cost"] == {
        "tokens": 20,
        "usd": 0.02,
    }


@pytest.mark.parametrize(
    "said", ['{"a b": 1}', '{"usd": "much"}', "[1]", '"x"', "7", '{"usd": {"a": 1}}', "null"]
)
def test_outlast_drains_survives_costs_of_another_version(file_world, outlast, said):
    from outlast.store.commands import Drain, StoreDrainReport

    file_world.store.commit(
        [
            RegisterWorker("w", "host", 1, 1e6),
            Drain("w", "deploy"),
            StoreDrainReport("w", f'{{"cost": {said}}}'),
        ]
    )
    assert outlast("drains", "--wide").splitlines()[1].split()[-2:] == ["-", "deploy"]
    assert "recorded by" not in outlast("drains", "w")


# -- metrics


def saved(app) -> dict[str, float]:
    return {
        one.labels["unit"]: one.value
        for one in app.status_provider.samples()
        if one.name == "outlast_cost_saved_total"
    }


def test_a_recovery_counts_what_it_did_not_spend_again(world):
    async def main(app):
        before = saved(app)
        assert await (await app.start(talk(), id="run")).result() == 1500
        return before, saved(app)

    world.die(talk(), after=5)
    assert world.do(main) == ({}, {"tokens": 1500, "usd": 1.5})


def test_run_that_only_lacked_its_final_record_counts_as_recovered(world):
    """It died between its last entry and its end: its whole replay is the recovery."""

    async def main(app):
        await (await app.start(talk(), id="run")).result()
        return saved(app)

    assert world.do(main) == {}
    world.restart()
    row = world.row()
    world.store._db.execute(
        "UPDATE runs SET status = 'queued', released = ended, ended = NULL, interrupted = 1, ready = 1"
    )
    world.store._db.execute(
        "INSERT INTO entries (run, seq, fence, kind, key, at, value) VALUES (?, 4, ?, 'death', '', ?, '{}')",
        (row.pk, row.fence, row.created + 100),
    )
    world.store._db.execute("UPDATE runs SET mark = 4")
    if world.store._db.in_transaction:
        world.store._db.commit()
    assert world.do(main) == {"tokens": 1800, "usd": 1.8}


def test_starting_retrying_and_waking_are_not_recoveries(world):
    async def main(app):
        await app.start(waits(), id="run")
        await asyncio.sleep(5)
        assert [row.status for row in await app.runs()] == ["waiting"]
        await app.send("run", "go", "on")
        await asyncio.sleep(5)
        assert [row.status for row in await app.runs()] == ["done"]
        return saved(app)

    assert (
        App(world.store, clock=world.clock, worker=True, workflows=[waits], ramp=0).do(main) == {}
    )


def test_a_run_that_came_back_and_then_only_waited_is_counted_once(world):
    world.die(waits(), after=5)

    async def main(app):
        counts = []
        for _ in range(3):
            await asyncio.sleep(5)
            counts.append(saved(app).get("tokens", 0))
            assert [row.status for row in await app.runs()] == ["waiting"]
            await app.send("run", "another", "message")
        await app.send("run", "go", "on")
        await asyncio.sleep(5)
        assert [row.status for row in await app.runs()] == ["done"]
        return [*counts, saved(app)["tokens"]]

    app = App(world.store, clock=world.clock, worker=True, workflows=[waits], ramp=0)
    assert app.do(main) == [30, 30, 30, 30]


def test_metric_labels_are_bounded(world):
    @step
    async def odd(number: int) -> None:
        current().cost(**{f"n{number}": 1})

    @workflow(name="odd ones")
    async def odd_ones() -> None:
        for number in range(UNITS_MAX + 10):
            await odd(number)
        await sleep(10)

    world.die(odd_ones(), after=5)

    async def main(app):
        await (await app.start(odd_ones(), id="run")).result()
        return saved(app)

    assert len(world.do(main)) == UNITS_MAX


def test_saved_costs_appear_in_the_metrics(world):
    from prometheus_client.exposition import generate_latest

    from outlast.http.metrics import registry_of

    world.die(talk(), after=5)

    async def main(app):
        await (await app.start(talk(), id="run")).result()
        return generate_latest(registry_of(app.status_provider.samples)).decode()

    assert 'outlast_cost_saved_total{unit="tokens"} 1500.0' in world.do(main)
