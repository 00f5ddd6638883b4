"""Providers, samplers and exporters of spans: what they decide, and what their failures do not affect."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import threading

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    TraceIdRatioBased,
)
from span_tools import SECRET, Sent, quiet, two
from telemetry_tools import outside

from outlast import Outlast, workflow
from support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.timeout(180)


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


def test_opentelemetry_is_not_imported_when_unused(tmp_path):
    program = textwrap.dedent("""
        import sys
        from outlast import run, step, workflow
        from outlast.engine.run_observer import RunObserver

        spans = []
        gone = RunObserver.ended
        RunObserver.ended = lambda observer, execution, outcome: (spans.append(execution.trace.span), gone(observer, execution, outcome))[1]

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
