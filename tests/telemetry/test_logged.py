"""No value is in a log line, whatever happens to it, unless values are asked for; and what is said of a run says of which."""

import ast
import asyncio
import json
import logging
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

from outlast import Outlast, effect, receive, session, step, workflow
from outlast.errors import RunParked, StoreUnavailable
from outlast.logs import JSONFormatter
from outlast.store.sqlite.store import SQLiteStore
from support.waiting import wait_until_async

SECRET = "4111-1111-1111-1111"
SOURCE = Path(__file__).parents[2] / "src" / "outlast"
BROKEN: set[str] = set()


class Card(BaseModel):
    number: int


@step
async def carry(card: str) -> str:
    return card


@step(retries=1, backoff=0.01)
async def raises(card: str) -> str:
    await carry(card)  # a step in a step has its arguments in its key
    raise ValueError(f"no such card: {card}")


@step
async def invalid(card: str) -> str:
    return str(Card.model_validate({"number": card}))


@step
async def told_to_stop(card: str) -> str:
    from outlast import current

    def listener(why: str) -> None:
        raise ValueError(card)

    current().on_drain(listener)
    await asyncio.sleep(1000)
    return card


@effect(timeout=1)
async def charge(card: str) -> str:
    raise ConnectionError(f"{card} was perhaps charged")


@charge.verify
async def charged(card: str) -> None:
    raise TimeoutError(f"cannot tell of {card}")


@effect(timeout=1)
async def book(card: str) -> str:
    return card


@book.compensate(retries=0, idempotent=False)
async def unbook(booked: str) -> None:
    raise ConnectionError(f"{booked} cannot be unbooked")


@workflow
async def fine(card: str) -> str:
    chat = session("chat")
    await chat.set("card", card)
    assert await chat.get("card") == card
    return await carry(card) + await receive("more", str)


@workflow
async def fails(card: str) -> str:
    return await raises(card)


@workflow
async def misfits(card: str) -> str:
    return await invalid(card)


@workflow
async def unknown(card: str) -> str:
    return await charge(card)


@workflow
async def stuck(card: str) -> str:
    await book(card)
    raise LookupError(card)


@workflow
async def diverges(card: str) -> str:
    if "diverges" in BROKEN:
        return await invalid(card)
    await carry(card)
    await receive("more", str)
    return card


@workflow
async def long(card: str) -> str:
    return await told_to_stop(card)


@pytest.fixture(autouse=True)
def _whole():
    BROKEN.clear()


async def everything(app: Outlast) -> None:
    """A secret through all that can happen to it."""
    app._open.claim_from(("default",), 20)  # what is claimed is logged
    for flow in (fine, fails, misfits, unknown, stuck, diverges, long):
        await app.submit(flow(SECRET), id=flow.name)
    await app.send("fine", "more", SECRET)
    queue = app.queue("mail")
    await queue.put_many([SECRET, f"again {SECRET}"], ids=["one", "two"])

    async def handle(item) -> None:
        raise ValueError(f"bad payload: {item.payload}")

    consuming = asyncio.ensure_future(queue.consume(handle))
    await asyncio.sleep(60)
    consuming.cancel()
    await asyncio.wait([consuming])
    await app.queue("by-hand").put(SECRET)
    await (await app.queue("by-hand").claim()).nack(reason=f"no {SECRET}")
    await app.session("chat").append("cards", SECRET)


async def statuses(app: Outlast) -> dict[str, str]:
    return {info.id: info.status for info in await app.runs(items=None)}


def walk(world, **settings) -> None:
    settings = {
        "lease": 1e7,
        "max_attempts": 2,
        "poll": 1.0,
        "ramp": 0.0,
        "grace": 8,
        "checkpoint_reserve": 1,
        "exit_reserve": 1,
        **settings,
    }
    world.settings = settings

    async def first(app):
        await everything(app)
        found = await statuses(app)
        await app.drain("test")
        return found

    found = world.do(first)
    assert (found["fine"], found["fails"], found["misfits"]) == ("done", "failed", "failed")
    assert (found["unknown"], found["stuck"], found["mail/one"]) == ("parked", "parked", "dead")
    BROKEN.add("diverges")
    world.restart(**settings)

    async def second(app):
        run = await app.start(diverges(SECRET), id="diverges")
        await app.send("diverges", "more", SECRET)
        with pytest.raises(RunParked):
            await run.result(timeout=100)
        await asyncio.sleep(0.1)  # hooks

    world.do(second)


def test_no_value_is_logged_at_any_level(world, heard):
    walk(world)
    text = heard.text()
    assert SECRET not in text, next(
        (record.name, record.levelname, record.getMessage()) for record in heard.records if SECRET in repr(vars(record)) + JSONFormatter().format(record)
    )  # fmt: skip
    messages = [record.getMessage() for record in heard.records]
    for expected in (
        "run fails failed: ValueError", "run misfits failed: pydantic_core._pydantic_core.ValidationError", "run fine is done",
        "item one failed, attempt 1", "effect charge#1 of run unknown is unknown (`outlast show unknown` says why)",
        "verify of effect charge#1 of run unknown could not tell: TimeoutError",
        "run unknown is parked: unknown: a person must say what came of it", "run stuck is parked: stuck: a person must say what came of it",
        "run diverges is parked: `outlast show diverges` says why", "item mail/one is a dead letter: `outlast show mail/one` says why",
        "on_drain of step told_to_stop#1 failed",
    ):  # fmt: skip
        assert expected in messages, expected
    assert "in handle" in JSONFormatter().format(_one(heard, "item one failed, attempt 1")), (
        "where it was raised"
    )


def test_log_values_adds_values_to_log_lines(world, heard):
    walk(world, log_values=200)
    messages = [record.getMessage() for record in heard.records]
    assert f"run fails failed: ValueError: no such card: {SECRET}" in messages
    assert f'step carry#1(card="{SECRET}") of run fine: "{SECRET}"' in messages or any(
        message.startswith("step carry#1(") and message.count(SECRET) == 2 for message in messages
    )
    assert f"bad payload: {SECRET}" in JSONFormatter().format(
        _one(heard, "item one failed, attempt 1")
    )


def test_log_values_truncates_long_values(world, heard):
    walk(world, log_values=5)
    assert SECRET not in heard.text()
    assert "run fails failed: ValueError: no su…" in [
        record.getMessage() for record in heard.records
    ]


def test_failed_attempt_is_logged_with_step_and_number(world, heard):
    walk(world)
    told = [record for record in heard.records if record.getMessage().startswith("attempt ")]
    lines = {record.getMessage().partition(";")[0]: record for record in told}
    first = lines["attempt 1 of step raises#1 of run fails failed: ValueError"]
    assert (first.run, first.step, first.attempt, first.levelno) == (
        "fails",
        "raises#1",
        1,
        logging.INFO,
    )
    assert "; the next in 0.0" in first.getMessage()
    assert "attempt 2 of step raises#1 of run fails failed: ValueError" not in lines, (
        "then the run has failed"
    )
    doubtful = lines["attempt 1 of effect charge#1 of run unknown failed: ConnectionError"]
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
        record for record in heard.records if record.getMessage().startswith("attempt 1 of step ")
    )
    assert found.getMessage().startswith(
        "attempt 1 of step within in around#1 of run n failed: LookupError; "
    )
    assert (found.step, found.attempt) == ("around#1", 1)
    assert SECRET not in heard.text()


def test_failed_run_is_logged_with_its_failed_step(world, heard):
    walk(world)
    assert _one(heard, "run fails failed: ValueError").step == "raises#1"


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


def test_a_run_that_is_undone_or_fails_by_itself_is_told_with_the_step_or_without(world, heard):
    async def first(app):
        app._open.claim_from(("default",), 20)
        for flow in (undone, own_fault):
            with pytest.raises(Exception, match=r"4111"):
                await (await app.submit(flow(SECRET), id=flow.name)).result(timeout=100)

    world.do(first)
    said = "run undone failed: pydantic_core._pydantic_core.ValidationError"
    assert [record.step for record in heard.records if record.getMessage() == said][
        -1
    ] == "invalid#1"
    assert _one(heard, "run own_fault failed: LookupError").step is None


def test_what_an_attempt_failed_by_is_told_if_values_are_asked_for(world, heard):
    walk(world, log_values=200)
    said = "attempt 1 of step raises#1 of run fails failed: ValueError: no such card: " + SECRET
    assert any(record.getMessage().startswith(said) for record in heard.records)


def _one(heard, message: str) -> logging.LogRecord:
    return next(record for record in heard.records if record.getMessage() == message)


def test_step_log_lines_name_step_and_run(world, heard):
    walk(world)
    line = json.loads(JSONFormatter().format(_one(heard, "verify of effect charge#1 of run unknown could not tell: TimeoutError")))  # fmt: skip
    assert (line["run"], line["workflow"], line["step"], line["attempt"]) == (
        "unknown",
        "unknown",
        "charge#1",
        1,
    )
    assert line["fence"] > 0
    assert line["worker"]
    assert line["queue"] == "default"


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """Return every call of a logger in the source that is about a run, an item or a step."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text()
        if "log." not in source:
            continue
        tree = ast.parse(source)
        texts = {
            node.targets[0].id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
        }  # fmt: skip
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)):  # fmt: skip
                continue
            if node.func.value.id != "log" or not node.args:
                continue
            first = node.args[0]
            text = (
                first.value
                if isinstance(first, ast.Constant)
                else texts.get(getattr(first, "id", ""), "")
            )
            if any(f"{what} %s" in str(text) for what in ("run", "item", "step", "effect")):
                found.append((f"{path.relative_to(SOURCE)}:{node.lineno} {text}", node))
    return found


def test_run_log_lines_name_their_run():
    found = calls()
    assert len(found) >= 15
    without = [
        where for where, call in found if not any(word.arg == "extra" for word in call.keywords)
    ]
    assert without == []


def test_run_log_lines_have_no_unmasked_traceback():
    """What an exception says is the program's: it is veiled."""
    for where, call in calls():
        assert call.func.attr != "exception", where
        for word in call.keywords:
            if word.arg == "exc_info":
                assert isinstance(word.value, (ast.Name, ast.Call)), where
                assert "redact" in ast.unparse(word.value), where


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
    """It does not answer when asked for a run, so many times."""

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
    assert any(message.startswith("item mail/one is a dead letter: ") for message in messages)
