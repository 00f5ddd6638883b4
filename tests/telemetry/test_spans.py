"""Each run has one trace over all its executions. Its step spans are children of an execution's span."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode
from span_tools import Sent, flow, own, two, work

from outlast import Outlast, workflow

pytestmark = pytest.mark.timeout(180)


def parent(sent: Sent, span):
    (above,) = [
        one
        for one in sent.all
        if span.parent is not None and one.context.span_id == span.parent.span_id
    ]
    return above


def test_step_spans_are_children_of_their_life(world, sent):
    world.run(flow())
    life = sent.one("run flow")
    assert {span.context.trace_id for span in sent.all if "child" not in span.name and span.name not in ("start flow", "step within", "deep")} == {life.context.trace_id}  # fmt: skip
    assert parent(sent, sent.one("step work")) is life
    assert parent(sent, sent.one("client call")) is sent.one("step work")
    assert parent(sent, sent.one("in a thread")) is sent.one("step in_thread")
    inner = next(
        span for span in sent.named("step within") if span.context.trace_id == life.context.trace_id
    )
    assert parent(sent, inner) is sent.one("step work")
    assert sent.one("step shaky").attributes["outlast.attempt"] == 2
    assert sent.one("step work").attributes["outlast.key"] == "work#1"
    assert sent.one("step work").status.status_code is StatusCode.OK
    facts = life.attributes
    assert (facts["outlast.run"], facts["outlast.workflow"], facts["outlast.life"]) == (
        "run",
        "flow",
        1,
    )
    assert facts["outlast.end"] == "done"
    assert facts["outlast.fence"] > 0
    assert facts["outlast.worker"]
    assert life.parent is not None, "the run, which is no span that is sent"


def test_child_run_has_its_own_linked_trace(world, sent):
    world.run(flow())
    above, below = sent.one("run flow"), sent.one("run child")
    assert above.context.trace_id != below.context.trace_id
    assert [link.context.trace_id for link in below.links] == [above.context.trace_id]
    start = sent.one("start child")
    assert start.context.trace_id == above.context.trace_id
    assert [link.context.trace_id for link in start.links] == [below.context.trace_id]


@workflow
async def slow_child() -> str:
    return await work("child")


@workflow
async def slow_parent() -> str:
    return await slow_child()


def test_later_life_of_a_child_keeps_its_link(world, sent):
    world.die(slow_parent(), id="run", after=0.5)
    started = sent.one("start slow_child")

    async def main(app):
        assert app._open.in_flight.executions == {}
        return await (await app.start(slow_child(), id="run/slow_child#1")).result()

    assert world.do(main) == "child"
    life = sent.one("run slow_child")
    assert life.attributes["outlast.life"] == 2
    assert [link.context.trace_id for link in life.links] == [started.context.trace_id]


def test_unreadable_parent_costs_only_the_link(world, sent):
    world.die(slow_parent(), id="run", after=0.5)

    async def main(app):
        real = app.store.run
        app.store.run = lambda name: 1 / 0 if name == "run" else real(name)
        try:
            return await (await app.start(slow_child(), id="run/slow_child#1")).result()
        finally:
            app.store.run = real

    assert world.do(main) == "child"
    assert sent.one("run slow_child").links == ()


def test_lives_share_a_trace_and_name_the_cause(world, sent):
    async def drained(app):
        await app.start(two(), id="run")
        await asyncio.sleep(1.5)
        await app.drain("test")

    world.do(drained)
    world.restart()
    world.die(two(), after=0.5)  # killed: no span of that life
    world.run(two())
    first, third = sent.named("run two")
    assert first.context.trace_id == third.context.trace_id
    assert (first.parent.span_id, first.parent.trace_id) == (
        third.parent.span_id,
        third.parent.trace_id,
    )
    assert first.attributes["outlast.end"] == "released"
    assert "outlast.cause" not in first.attributes
    assert (third.attributes["outlast.cause"], third.attributes["outlast.life"]) == ("death", 3)


def test_run_trace_is_linked_from_the_request_span(world, sent):
    async def main(app):
        with own().start_as_current_span("GET /report"):
            await (await app.start(two(), id="run")).result()
            await app.submit(two(), id="other")

    world.do(main)
    request, life = sent.one("GET /report"), sent.one("run two")
    assert life.context.trace_id != request.context.trace_id
    assert life.context.trace_id == sent.one("start two").links[0].context.trace_id
    assert parent(sent, sent.one("start two")) is request
    assert parent(sent, sent.one("submit two")) is request
    assert len(sent.one("submit two").links) == 1


def test_store_calls_are_outside_the_trace(tmp_path, sent):
    """What instruments a database driver would see there."""
    seen: list[bool] = []

    async def main():
        async with Outlast(f"sqlite:///{tmp_path / 'agents.db'}") as app:
            store = app._open.store
            for name in ("commit", "try_commit", "journal", "run"):
                real = getattr(store, name)

                def spied(*args, _real=real):
                    seen.append(trace.get_current_span().get_span_context().is_valid)
                    return _real(*args)

                setattr(store, name, spied)
            app._open.writer._try = store.try_commit
            with own().start_as_current_span("GET /report"):
                await (await app.start(two(), id="run")).result()

    asyncio.run(main())
    assert len(seen) >= 4
    assert not any(seen)
