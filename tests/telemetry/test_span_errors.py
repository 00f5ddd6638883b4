"""Spans of failed, interrupted and refused work name the error and contain no values."""

import asyncio

import pytest
from opentelemetry.trace import StatusCode
from span_tools import SECRET, flow, quiet, two

from outlast import Conflict, RunCancelled, RunParked, current, effect, step, workflow

pytestmark = pytest.mark.timeout(180)


@step
async def broken() -> None:
    raise ValueError(SECRET)


@effect(timeout=5)
async def charge(card: str) -> str:
    return card


@charge.compensate
async def refund(card: str) -> None:
    return None


@workflow
async def fails() -> None:
    await charge(SECRET)
    await broken()


def test_spans_contain_no_values(world, sent):
    world.run(flow(), id="done")
    with pytest.raises(ValueError, match=SECRET):
        world.run(fails(), id="failed")
    assert "compensation refund" in sent.names()
    for span in sent.all:
        assert SECRET not in span.to_json(), span.name


def test_failed_spans_name_the_error_type(world, sent):
    with pytest.raises(ValueError, match=SECRET):
        world.run(fails())
    failed = sent.one("step broken")
    assert (failed.status.status_code, failed.attributes["error.type"]) == (
        StatusCode.ERROR,
        "ValueError",
    )
    first, second = sent.named("run fails")
    assert (first.attributes["outlast.end"], first.attributes["outlast.undoing"]) == (
        "undoing",
        False,
    )
    assert (second.attributes["outlast.end"], second.attributes["outlast.undoing"]) == (
        "failed",
        True,
    )
    assert second.status.status_code is StatusCode.ERROR
    assert (
        sent.one("effect charge").context.trace_id
        == sent.one("compensation refund").context.trace_id
    )


@effect(timeout=5)
async def doubtful() -> None:
    raise ConnectionError(SECRET)


@effect(timeout=5)
async def asked_about() -> None:
    raise ConnectionError(SECRET)


@asked_about.verify
async def does_not_know() -> None:
    raise LookupError(SECRET)


@step(retries=3, backoff=1000, backoff_max=1000)
async def failing() -> None:
    raise ConnectionError(SECRET)


@step(retries=3, backoff=0.01)
async def hanging() -> None:
    if current().attempt == 1:
        raise ConnectionError(SECRET)
    await asyncio.sleep(1000)


@workflow
async def act() -> None:
    await doubtful()


@workflow
async def ask() -> None:
    await asked_about()


@workflow
async def retry() -> None:
    await failing()


@workflow
async def hang() -> None:
    await hanging()


def said(span) -> tuple:
    facts, status = span.attributes, span.status
    assert status.description == facts.get("error.type")
    assert SECRET not in span.to_json()
    return facts["outlast.end"], status.status_code, facts.get("error.type")


@pytest.mark.parametrize(("flow", "name"), [(act, "doubtful"), (ask, "asked_about")])
def test_unknown_effect_span_names_its_error(world, sent, flow, name):
    with pytest.raises(RunParked):
        world.run(flow())
    assert said(sent.one(f"effect {name}")) == ("interrupted", StatusCode.ERROR, "ConnectionError")
    assert said(sent.one(f"run {flow.name}")) == (
        "parked",
        StatusCode.ERROR,
        "outlast.errors.RunParked",
    )


def test_interrupted_retry_span_names_the_last_error(world, sent):
    async def drained(app):
        await app.start(retry(), id="run")
        await app.start(hang(), id="other")
        await asyncio.sleep(1)
        await app.drain("test")

    world.settings = {"grace": 4, "checkpoint_reserve": 1, "exit_reserve": 1}
    world.do(drained)
    assert said(sent.one("step failing")) == ("interrupted", StatusCode.ERROR, "ConnectionError")
    assert said(sent.one("step hanging")) == ("interrupted", StatusCode.UNSET, None)
    assert said(sent.one("run retry")) == ("released", StatusCode.UNSET, None)


def test_diverged_life_span_names_the_error(world, sent):
    @workflow(name="two")
    async def other() -> None:
        await quiet()

    world.die(two(), after=1.5)
    with pytest.raises(RunParked):
        world.run(other())
    assert said(sent.one("run two")) == ("parked", StatusCode.ERROR, "outlast.errors.Diverged")


def test_cancelled_life_span_has_no_error(world, sent):
    async def main(app):
        run = await app.start(hang(), id="run")
        await asyncio.sleep(1)
        await app.cancel("run")
        with pytest.raises(RunCancelled):
            await run.result()

    world.do(main)
    assert said(sent.one("run hang")) == ("cancelled", StatusCode.UNSET, None)
    assert said(sent.one("step hanging")) == ("cancelled", StatusCode.UNSET, None)


def test_interrupted_step_span_says_so(world, sent):
    world.settings = {"grace": 4, "checkpoint_reserve": 1, "exit_reserve": 1}

    @step
    async def long() -> None:
        await asyncio.sleep(1000)

    @workflow
    async def endless() -> None:
        await long()

    async def drained(app):
        await app.start(endless(), id="run")
        await asyncio.sleep(1)
        await app.drain("test")

    world.do(drained)
    (span,) = [one for one in sent.all if one.name.startswith("step ")]
    assert span.attributes["outlast.end"] == "interrupted"
    assert span.status.status_code is StatusCode.UNSET


def test_refused_start_span_names_the_error(world, sent):
    @workflow(name="two")
    async def other(secret: str) -> str:
        return secret

    async def main(app):
        await (await app.start(two(), id="run")).result()
        app._open.workflows._workflows.clear()
        with pytest.raises(Conflict):
            await app.start(other(SECRET), id="run")

    world.do(main)
    _, refused = sent.named("start two")
    assert (refused.status.status_code, refused.status.description) == (
        StatusCode.ERROR,
        "Conflict",
    )
    assert refused.attributes["error.type"] == "Conflict"
    assert SECRET not in refused.to_json()
