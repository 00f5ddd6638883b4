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
from outlast.errors import RunParked, StoreError, StoreUnavailable
from outlast.logs import JSONFormatter, TextFormatter
from outlast.settings import Settings
from outlast.settings.masks import secrets_of
from outlast.store.sqlite.store import SQLiteStore
from outlast.telemetry.values import told, veiled

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


class Heard(logging.Handler):
    """Every record of every logger, as each kind of handler would write it."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.records: list[logging.LogRecord] = []
        self._formatters = (JSONFormatter(), TextFormatter(), logging.Formatter("%(message)s %(name)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def text(self) -> str:
        lines = [one.format(record) for record in self.records for one in self._formatters]
        return "\n".join([*lines, *(repr(vars(record)) for record in self.records)])


@pytest.fixture
def heard():
    root, ours = logging.getLogger(), logging.getLogger("outlast")
    before, level, own = root.handlers[:], root.level, ours.level
    handler = Heard()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.DEBUG)
    yield handler
    root.handlers[:] = before
    root.setLevel(level)
    ours.setLevel(own)


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


def test_values_are_logged_if_they_are_asked_for_and_no_more_of_them(world, heard):
    walk(world, log_values=200)
    messages = [record.getMessage() for record in heard.records]
    assert f"run fails failed: ValueError: no such card: {SECRET}" in messages
    assert f'step carry#1(card="{SECRET}") of run fine: "{SECRET}"' in messages or any(
        message.startswith("step carry#1(") and message.count(SECRET) == 2 for message in messages
    )
    assert f"bad payload: {SECRET}" in JSONFormatter().format(_one(heard, "item one failed, attempt 1"))


def test_only_so_much_of_a_value_is_logged(world, heard):
    walk(world, log_values=5)
    assert SECRET not in heard.text()
    assert "run fails failed: ValueError: no su…" in [record.getMessage() for record in heard.records]


def test_an_attempt_that_fails_is_a_line_with_its_step_and_its_number(world, heard):
    walk(world)
    told = [record for record in heard.records if record.getMessage().startswith("attempt ")]
    lines = {record.getMessage().partition(";")[0]: record for record in told}
    first = lines["attempt 1 of step raises#1 of run fails failed: ValueError"]
    assert (first.run, first.step, first.attempt, first.levelno) == ("fails", "raises#1", 1, logging.INFO)
    assert "; the next in 0.0" in first.getMessage()
    assert "attempt 2 of step raises#1 of run fails failed: ValueError" not in lines, (
        "then the run has failed"
    )
    doubtful = lines["attempt 1 of effect charge#1 of run unknown failed: ConnectionError"]
    assert "the next" not in doubtful.getMessage()


def test_an_attempt_of_a_step_within_a_step_is_told_without_its_arguments(world, heard):
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
    found = next(record for record in heard.records if record.getMessage().startswith("attempt 1 of step "))
    assert found.getMessage().startswith(
        "attempt 1 of step within in around#1 of run n failed: LookupError; "
    )
    assert (found.step, found.attempt) == ("around#1", 1)
    assert SECRET not in heard.text()


def test_a_run_that_fails_is_told_with_the_step_that_failed(world, heard):
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
    assert [record.step for record in heard.records if record.getMessage() == said][-1] == "invalid#1"
    assert _one(heard, "run own_fault failed: LookupError").step is None


def test_what_an_attempt_failed_by_is_told_if_values_are_asked_for(world, heard):
    walk(world, log_values=200)
    said = "attempt 1 of step raises#1 of run fails failed: ValueError: no such card: " + SECRET
    assert any(record.getMessage().startswith(said) for record in heard.records)


def _one(heard: Heard, message: str) -> logging.LogRecord:
    return next(record for record in heard.records if record.getMessage() == message)


def test_a_line_about_a_step_says_which_and_whose(world, heard):
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
    """Every call of a logger in the source that is about a run, an item or a step."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
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
            text = first.value if isinstance(first, ast.Constant) else texts.get(getattr(first, "id", ""), "")
            if any(f"{what} %s" in str(text) for what in ("run", "item", "step", "effect")):
                found.append((f"{path.relative_to(SOURCE)}:{node.lineno} {text}", node))
    return found


def test_every_line_about_a_run_says_of_which():
    found = calls()
    assert len(found) >= 15
    without = [where for where, call in found if not any(word.arg == "extra" for word in call.keywords)]
    assert without == []


def test_no_line_about_a_run_has_a_bare_traceback():
    """What an exception says is the program's: it is veiled."""
    for where, call in calls():
        assert call.func.attr != "exception", where
        for word in call.keywords:
            if word.arg == "exc_info":
                assert isinstance(word.value, (ast.Name, ast.Call)), where
                assert "veil" in ast.unparse(word.value), where


def test_what_executed_on_after_a_close_and_failed_is_told_without_what_it_says(world, heard):
    async def late(card: str) -> None:
        raise LookupError(card)

    async def first(app):
        app._open.afterwards(late(SECRET))
        await asyncio.sleep(0.1)

    world.do(first)
    assert _one(heard, "what executed on after the close could not be given back: LookupError")
    assert SECRET not in heard.text()


class Away(SQLiteStore):
    """It does not answer when asked for a run, so many times."""

    times = 0

    def run(self, id):
        if self.times > 0:
            self.times -= 1
            raise StoreUnavailable("the disk is away")
        return super().run(id)


def test_a_run_that_needs_a_person_is_told_of_also_if_the_store_is_away_then(tmp_path, heard, monkeypatch):
    monkeypatch.setattr("outlast.app.hooks.AGAIN_SECONDS", 0.01)
    store, called = Away(tmp_path / "a.db"), []

    async def main() -> None:
        async with Outlast(store, on_dead=called.append, max_attempts=1) as app:
            await app.queue("mail").put(SECRET, id="one")
            item = await app.queue("mail").claim()
            store.times = 3
            await item.nack(reason="no")
            while not called:
                await asyncio.sleep(0.01)
            (counter,) = [
                one for one in app._open.meters.counters if one.metric.name == "outlast_dead_letters_total"
            ]
            assert counter.counts[("mail",)] == 1

    asyncio.run(asyncio.wait_for(main(), 20))
    assert called[0].status == "dead" and store.times == 0
    at_once = "mail/one is a dead letter; why is told when the store answers again: the disk is away"
    messages = [record.getMessage() for record in heard.records]
    assert messages.count(at_once) == 1
    assert any(message.startswith("item mail/one is a dead letter: ") for message in messages)


# -- secrets

PASSWORD = 'p"ä/ss wörd'


@pytest.fixture
def hiding(monkeypatch):
    from outlast.telemetry import logs

    monkeypatch.setattr(logs, "_secrets", {})
    return logs


def record(message: str, error: Exception | None = None, **extra) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("anybody", logging.INFO, "file", 1, message, (), info)
    vars(made).update(extra)
    return made


def test_secrets_in_force_are_replaced_in_whatever_is_logged(hiding):
    hiding.hide(PASSWORD, "abc")
    quoted = "p%22%C3%A4%2Fss%20w%C3%B6rd"
    made = record(
        f"at postgresql://me:{quoted}@host", ValueError(PASSWORD), run=f"r {PASSWORD}", workers=[PASSWORD]
    )
    for formatter in (JSONFormatter(), TextFormatter()):
        line = formatter.format(made)
        assert "rd" not in line.replace("record", ""), line
        assert line.count("***") == 4
    assert "abcdef" in TextFormatter().format(record("abcdef")), (
        "a secret of three characters is in every other word"
    )


@pytest.mark.parametrize("formatter", [JSONFormatter(), TextFormatter()], ids=["json", "text"])
def test_a_secret_is_replaced_in_what_was_printed_for_a_program_too(hiding, formatter):
    secret = 'qu"ote\\back\nslash-ü'
    hiding.hide(secret)
    for text in (f"{secret!r}", f"{[secret]}", json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
        record = logging.makeLogRecord({"name": "x", "levelname": "INFO", "msg": "%s", "args": (text,), "reason": text, "event": text})  # fmt: skip
        said = formatter.format(record)
        assert "***" in said
        assert "back" not in said, said


def test_the_name_that_redis_gives_to_everybody_is_no_secret():
    assert not any(secrets_of(Settings(store="redis://default@127.0.0.1:1/0")))


def test_an_app_has_its_own_secrets_hidden(hiding, tmp_path):
    async def main() -> None:
        async with Outlast(f"sqlite:///{tmp_path / 'a.db'}", http_secret="s3cret-of-mine"):
            pass

    asyncio.run(main())
    assert hiding.hidden("the header was Bearer s3cret-of-mine") == "the header was Bearer ***"


@pytest.mark.parametrize(
    ("address", "password"),
    [
        ("postgresql://me:hunter2-x@127.0.0.1:1/db", "hunter2-x"),
        ("postgresql://127.0.0.1:1/db?user=me&password=hunter2-x", "hunter2-x"),
        ("redis://:hunter2-x@127.0.0.1:1/0", "hunter2-x"),
        ("redis://me:hunter2%40x@127.0.0.1:1/0", "hunter2@x"),
        ("redis://hunter2-x@127.0.0.1:1/0", "hunter2-x"),
    ],
)
def test_the_password_of_a_store_is_in_no_record_to_begin_with(hiding, heard, address, password):
    async def main() -> None:
        async with Outlast(address, store_patience=0.2):
            raise AssertionError

    with pytest.raises(StoreError) as failed:
        asyncio.run(main())
    assert password not in str(failed.value)
    assert hiding.hidden(f"it was {password}") == "it was ***"
    for one in heard.records:
        assert password not in repr(vars(one))
        assert password not in logging.Formatter().format(one)


def test_an_error_with_many_causes_is_veiled_once_each():
    def chained(length: int) -> None:
        if length == 0:
            raise KeyError(SECRET)
        try:
            chained(length - 1)
        except Exception as error:
            raise ValueError(f"{length} {SECRET}") from error

    kinds = []
    with pytest.raises(ValueError) as caught:
        chained(30)
    veil = veiled(caught.value, 0)
    while veil is not None:
        kinds.append(type(veil).__name__)
        assert veil.__context__ is None, "which is the same error again"
        veil = veil.__cause__
    assert kinds == ["ValueError"] * 10


def test_an_error_whose_own_text_fails_is_logged_all_the_same():
    class Unsayable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert told(Unsayable(), 100).endswith("Unsayable: (its message could not be read: RuntimeError)")
    assert str(veiled(Unsayable(), 100)) == "(its message could not be read: RuntimeError)"
