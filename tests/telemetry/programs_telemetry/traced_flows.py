"""A worker whose program sends spans to a file, and only when it is flushed: the processor never sends by itself."""

import os
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from tele_flows import journey

__all__ = ["journey"]

sent = Path(os.environ["GATE"], f"spans-{os.getpid()}").open("w")
exporter = ConsoleSpanExporter(out=sent, formatter=lambda span: span.to_json(indent=None) + "\n")
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))
trace.set_tracer_provider(provider)
