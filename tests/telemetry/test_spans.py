"""One trace a run over all its lives; steps beneath their life; nothing where nobody wants any."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import threading

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    TraceIdRatioBased,
)
from opentelemetry.trace import StatusCode
from telemetry_tools import outside

from outlast import Conflict, Outlast, RunCancelled, RunParked, current, effect, step, workflow
from support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.timeout(180)
SECRET = "hunter2-in-a-value"


class Sent:
    """The spans that a provider has sent."""

    def __init__(self, monkeypatch, sampler) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        monkeypatch.setattr(
            trace, "_TRACER_PROVIDER", self.provider
        )  # it can be set once in a process

    @property
    def all(self) -> list:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list:
        return [span for span in self.all if span.name == name]

    def one(self, name: str):
        (span,) = self.named(name)
        return span

    def names(self) -> list[str]:
        return sorted(span.name for span in self.all)


@pytest.fixture
def sent(monkeypatch) -> Sent:
    return Sent(monkeypatch, ParentBased(ALWAYS_ON))


def own() -> trace.Tracer:
    return trace.get_tracer("the program's")


@step
async def within(text: str) -> str:
    with own().start_as_current_span("deep"):
        return text


@step
async def work(text: str) -> str:
    with own().start_as_current_span("client call"):
        await asyncio.sleep(1)
    return await within(text)


@step
def in_thread(text: str) -> str:
    with own().start_as_current_span("in a thread"):
        return text


@step(retries=1, backoff=0.01)
async def shaky() -> None:
    if current().attempt == 1:
        raise ConnectionError(SECRET)


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
async def child() -> str:
    return await within(SECRET)


@workflow
async def flow() -> str:
    await work(SECRET)
    await in_thread.aio(SECRET)
    await shaky()
    return await child()


@workflow
async def fails() -> None:
    await charge(SECRET)
    await broken()


@workflow
async def two() -> str:
    await work("a")
    return await work("b")


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


@pytest.mark.parametrize("sampler", [ParentBased(TraceIdRatioBased(0.5)), TraceIdRatioBased(0.5)])
def test_sampling_decides_once_per_run(world, monkeypatch, sampler):
    sent = Sent(monkeypatch, sampler)

    async def begun(app):
        for number in range(30):
            await app.start(two(), id=f"run-{number}")
        await asyncio.sleep(1.5)
        await app.drain("test")

    async def ended(app):
        for number in range(30):
            await (await app.start(two(), id=f"run-{number}")).result()

    world.do(begun)
    world.restart()
    world.do(ended)
    lives: dict[str, int] = {}
    for span in sent.named("run two"):
        lives[span.attributes["outlast.run"]] = lives.get(span.attributes["outlast.run"], 0) + 1
    assert set(lives.values()) == {2}
    assert 0 < len(lives) < 30


def test_sampler_can_turn_off_all_spans(world, monkeypatch):
    sent = Sent(monkeypatch, ALWAYS_OFF)
    world.run(two())
    assert sent.all == []


def test_provider_set_after_opening_is_used(world, monkeypatch):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)

    async def main(app):
        await (await app.start(two(), id="before")).result()
        sent = Sent(monkeypatch, ALWAYS_ON)
        await (await app.start(two(), id="after")).result()
        return sent

    assert world.do(main).names() == ["client call"] * 2 + ["deep"] * 2 + ["run two", "start two"] + ["step within"] * 2 + ["step work"] * 2  # fmt: skip


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


def test_opentelemetry_is_not_imported_when_unused(tmp_path):
    program = textwrap.dedent("""
        import sys
        from outlast import run, step, workflow
        from outlast.engine.run_observer import RunObserver

        spans = []
        gone = RunObserver.ended
        RunObserver.ended = lambda observer, life, outcome: (spans.append(life.trace.span), gone(observer, life, outcome))[1]

        @step
        async def one() -> int:
            return 1

        @workflow
        async def flow() -> int:
            return await one()

        assert run(flow(), id="run", store="memory:") == 1
        assert spans == [None]
        assert not [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]
    """)
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, timeout=WAIT_SECONDS)


def test_drain_flushes_spans_and_both_lives_share_a_trace(start, tmp_path):
    os.environ["GATE"] = str(tmp_path)
    from tele_flows import journey

    first = start(flows="traced_flows.py").wait_until_ready()
    outside(tmp_path, lambda app: app.submit(journey(), id="run"))
    first.wait_for_file("first-waits-*")
    first.terminate()
    first.wait_until(lambda: first.get("/ready").status_code == 503)
    first.open_to("first")
    assert first.wait() == 0
    second = start(flows="traced_flows.py").wait_until_ready()
    second.open_to("second")
    second.scrape_until("outlast_runs_total", "journey", "done")
    second.terminate()
    assert second.wait() == 0
    spans = [
        json.loads(line)
        for worker in (first, second)
        for line in (tmp_path / f"spans-{worker.pid}").read_text().splitlines()
    ]
    assert {span["context"]["trace_id"] for span in spans} == {spans[0]["context"]["trace_id"]}
    lives = [span for span in spans if span["name"] == "run journey"]
    assert [life["attributes"]["outlast.end"] for life in lives] == ["released", "done"]
    assert lives[1]["attributes"]["outlast.cause"] == "interruption"
    assert lives[0]["attributes"]["outlast.worker"] != lives[1]["attributes"]["outlast.worker"]
    assert sorted(span["name"] for span in spans) == ["effect book", "run journey", "run journey", "step pay", "step wait", "step wait"]  # fmt: skip


def test_hanging_exporter_does_not_delay_a_drain(tmp_path, sent, monkeypatch):
    monkeypatch.setattr("outlast.shutdown.close_steps.FLUSH_SECONDS", 0.2)
    gate, asked, opened = threading.Event(), [], []

    def hang(milliseconds: int) -> None:
        asked.append(milliseconds)
        opened.append(gate.wait(WAIT_SECONDS))

    monkeypatch.setattr(sent.provider, "force_flush", hang)

    async def main() -> None:
        async with Outlast(f"sqlite:///{tmp_path / 'agents.db'}", grace=600) as app:
            await (await app.start(two(), id="run")).result()
            await app.drain("test")

    asyncio.run(main())
    assert (asked, opened) == ([200], []), "the app is closed while the exporter hangs"
    gate.set()


def test_exporter_gets_half_of_the_remaining_grace(world, sent, monkeypatch):
    monkeypatch.setattr("outlast.shutdown.close_steps.FLUSH_SECONDS", 3600.0)
    asked: list[int] = []
    monkeypatch.setattr(sent.provider, "force_flush", asked.append)
    world.settings = {"grace": 8}

    async def drained(app):
        await (await app.start(nothing(), id="run")).result()
        await app.drain("test")

    world.do(drained)
    assert len(asked) == 1
    assert 3900 <= asked[0] <= 4000


class Faulty(SpanProcessor):
    """The program's own, with something wrong in it."""

    def on_start(self, span, parent_context=None) -> None:
        raise RuntimeError("no start")

    def on_end(self, span) -> None:
        raise RuntimeError("no end")


class Moody(Sampler):
    def should_sample(self, *args, **kwargs):
        raise RuntimeError("not today")

    def get_description(self) -> str:
        return "moody"


@step
async def quiet() -> int:
    return 1


@workflow
async def silent() -> int:
    return await quiet()


@pytest.mark.parametrize("fault", ["processor", "sampler"])
def test_faulty_processor_or_sampler_does_not_affect_runs(world, sent, fault):
    if fault == "processor":
        sent.provider.add_span_processor(Faulty())
    else:
        sent.provider.sampler = Moody()
    assert world.run(silent()) == 1
    assert world.do(lambda app: app.submit(silent(), id="other")).id == "other"


@workflow
async def nothing() -> str:
    return "done"


def test_failing_provider_does_not_affect_runs(world, monkeypatch, caplog):
    class Provider:
        def get_tracer(self, _):
            raise RuntimeError(SECRET)

    async def main(app):
        return await (await app.start(nothing(), id="run")).result()

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", Provider())
    assert world.do(main) == "done"
    assert SECRET not in caplog.text
    assert "RuntimeError" in caplog.text


def test_missing_provider_in_the_environment_does_not_affect_runs(world, monkeypatch):
    async def main(app):
        return await (await app.start(nothing(), id="run")).result()

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setenv("OTEL_PYTHON_TRACER_PROVIDER", "nobody-has-this")
    assert world.do(main) == "done"
