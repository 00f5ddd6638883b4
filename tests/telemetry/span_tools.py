"""Collect spans in memory, and the workflows that the tests of spans trace."""

import asyncio

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from outlast import current, step, workflow

SECRET = "hunter2-in-a-value"


class Sent:
    """The spans that a provider has sent."""

    def __init__(self, monkeypatch, sampler) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        # The official setter works once per process.
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", self.provider)

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
async def two() -> str:
    await work("a")
    return await work("b")


@step
async def quiet() -> int:
    return 1
