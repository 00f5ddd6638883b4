"""Log lines name their run and step, and contain no values unless `log_values` asks for them."""

import asyncio
import json
import logging

import pytest
from log_tools import SECRET, carry, invalid, walk

from outlast import Outlast, effect, step, workflow
from outlast.errors import StoreUnavailable
from outlast.logs import JSONFormatter
from outlast.store.sqlite.store import SQLiteStore
from support.waiting import wait_until_async


def test_no_value_is_logged_at_any_level(world, heard):
    walk(world)
    text = heard.text()
    assert SECRET not in text, next(
        (record.name, record.levelname, record.getMessage()) for record in heard.records if SECRET in repr(vars(record)) + JSONFormatter().format(record)
    )  # fmt: skip
    messages = [record.getMessage() for record in heard.records]
    for expected in (
        "Run fails failed: ValueError", "Run misfits failed: pydantic_core._pydantic_core.ValidationError", "Run fine is done.",
        "Item one failed in attempt 1.", "The outcome of effect charge#1 of run unknown is unknown (`outlast show unknown` shows why)",
        "Could not verify effect charge#1 of run unknown: TimeoutError",
        "Run unknown is parked: unknown: a person must decide the outcome", "Run stuck is parked: stuck: a person must decide the outcome",
        "Run diverges is parked: `outlast show diverges` shows why", "Item mail/one is a dead letter: `outlast show mail/one` shows why",
        "An on_drain callback of step told_to_stop#1 failed.",
    ):  # fmt: skip
        assert expected in messages, expected
    assert "in handle" in JSONFormatter().format(_one(heard, "Item one failed in attempt 1.")), (
        "where it was raised"
    )


def test_log_values_adds_values_to_log_lines(world, heard):
    walk(world, log_values=200)
    messages = [record.getMessage() for record in heard.records]
    assert f"Run fails failed: ValueError: no such card: {SECRET}" in messages
    assert f'step carry#1(card="{SECRET}") of run fine: "{SECRET}"' in messages or any(
        message.startswith("step carry#1(") and message.count(SECRET) == 2 for message in messages
    )
    assert f"bad payload: {SECRET}" in JSONFormatter().format(
        _one(heard, "Item one failed in attempt 1.")
    )


def test_log_values_truncates_long_values(world, heard):
    walk(world, log_values=5)
    assert SECRET not in heard.text()
    assert "Run fails failed: ValueError: no su…" in [
        record.getMessage() for record in heard.records
    ]


def test_failed_attempt_is_logged_with_step_and_number(world, heard):
    walk(world)
    told = [record for record in heard.records if record.getMessage().startswith("Attempt ")]
    lines = {record.getMessage().partition(";")[0]: record for record in told}
    first = lines["Attempt 1 of step raises#1 of run fails failed: ValueError"]
    assert (first.run, first.step, first.attempt, first.levelno) == (
        "fails",
        "raises#1",
        1,
        logging.INFO,
    )
    assert "; the next in 0.0" in first.getMessage()
    assert "Attempt 2 of step raises#1 of run fails failed: ValueError" not in lines, (
        "then the run has failed"
    )
    doubtful = lines["Attempt 1 of effect charge#1 of run unknown failed: ConnectionError"]
    assert "the next" not in doubtful.getMessage()


def test_failed_inner_attempt_is_logged_without_arguments(world, heard):
    world.settings = {"log_values": 0}

    @step(retries=1, backoff=0.01)
    async def within(card: str) -> str:
        raise LookupError(card)

    @step
    async def around(card: str) -> str:
        return await within(card)

    @workflow
    async def nested(card: str) -> str:
        return await around(card)

    async def first(app):
        run = await app.start(nested(SECRET), id="n")
        with pytest.raises(LookupError):
            await run.result(timeout=100)

    world.do(first)
    found = next(
        record for record in heard.records if record.getMessage().startswith("Attempt 1 of step ")
    )
    assert found.getMessage().startswith(
        "Attempt 1 of step within in around#1 of run n failed: LookupError; "
    )
    assert (found.step, found.attempt) == ("around#1", 1)
    assert SECRET not in heard.text()


def test_failed_run_is_logged_with_its_failed_step(world, heard):
    walk(world)
    assert _one(heard, "Run fails failed: ValueError").step == "raises#1"


@effect(timeout=1)
async def lend(card: str) -> str:
    return card


@lend.compensate(idempotent=True)
async def take_back(lent: str) -> None:
    return None


@workflow
async def undone(card: str) -> str:
    await lend(card)
    return await invalid(card)


@workflow
async def own_fault(card: str) -> str:
    await carry(card)
    raise LookupError(card)


def test_run_failure_names_the_step_only_if_a_step_failed(world, heard):
    async def first(app):
        app._open.claim_from(("default",), 20)
        for flow in (undone, own_fault):
            with pytest.raises(Exception, match=r"4111"):
                await (await app.submit(flow(SECRET), id=flow.name)).result(timeout=100)

    world.do(first)
    said = "Run undone failed: pydantic_core._pydantic_core.ValidationError"
    assert [record.step for record in heard.records if record.getMessage() == said][
        -1
    ] == "invalid#1"
    assert _one(heard, "Run own_fault failed: LookupError").step is None


def test_log_values_adds_the_error_of_a_failed_attempt(world, heard):
    walk(world, log_values=200)
    said = "Attempt 1 of step raises#1 of run fails failed: ValueError: no such card: " + SECRET
    assert any(record.getMessage().startswith(said) for record in heard.records)


def _one(heard, message: str) -> logging.LogRecord:
    return next(record for record in heard.records if record.getMessage() == message)


def test_step_log_lines_name_step_and_run(world, heard):
    walk(world)
    line = json.loads(JSONFormatter().format(_one(heard, "Could not verify effect charge#1 of run unknown: TimeoutError")))  # fmt: skip
    assert (line["run"], line["workflow"], line["step"], line["attempt"]) == (
        "unknown",
        "unknown",
        "charge#1",
        1,
    )
    assert line["fence"] > 0
    assert line["worker"]
    assert line["queue"] == "default"


def test_failure_after_close_is_logged_without_its_message(world, heard):
    async def late(card: str) -> None:
        raise LookupError(card)

    async def first(app):
        app._open.background.run_after_close(late(SECRET))
        await asyncio.sleep(0.1)

    world.do(first)
    assert _one(
        heard,
        "Work that outlived the close of the app could not be released: LookupError. "
        "Another worker takes it over when this process is gone.",
    )
    assert SECRET not in heard.text()


class Away(SQLiteStore):
    """Do not answer the first reads of a run, this many times."""

    times = 0

    def run(self, id):
        if self.times > 0:
            self.times -= 1
            raise StoreUnavailable("the disk is away")
        return super().run(id)


def test_dead_letter_is_logged_although_the_store_is_away(tmp_path, heard, monkeypatch):
    monkeypatch.setattr("outlast.engine.hooks.AGAIN_SECONDS", 0.01)
    store, called = Away(tmp_path / "a.db"), []

    async def main() -> None:
        async with Outlast(store, on_dead=called.append, max_attempts=1) as app:
            await app.queue("mail").put(SECRET, id="one")
            item = await app.queue("mail").claim()
            store.times = 3
            await item.nack(reason="no")
            await wait_until_async(lambda: called)
            (counter,) = [
                one
                for one in app._open.services.metrics.counters
                if one.metric.name == "outlast_dead_letters_total"
            ]
            assert counter.counts[("mail",)] == 1

    asyncio.run(main())
    assert called[0].status == "dead" and store.times == 0
    at_once = "mail/one is a dead letter. The reason follows when the store answers again: the disk is away"
    messages = [record.getMessage() for record in heard.records]
    assert messages.count(at_once) == 1
    assert any(message.startswith("Item mail/one is a dead letter: ") for message in messages)
