"""Start workers and scrape them over HTTP, as Prometheus does."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from outlast import Outlast
from outlast.telemetry.names import METRICS
from support.processes import Program, clean_environment
from support.waiting import WAIT_SECONDS

PROGRAMS = Path(__file__).parent / "programs_telemetry"
SETTINGS = {
    "OUTLAST_HEARTBEAT": "0.1", "OUTLAST_RAMP": "0", "OUTLAST_LEASE": "3600", "OUTLAST_GRACE": "600",
}  # fmt: skip

Series = tuple[str, ...]


class Worker(Program):
    """A process of `outlast worker`, and what it exports at /metrics."""

    def __init__(self, folder: Path, flows: str = "tele_flows.py", **env: str) -> None:
        address = f"sqlite:///{folder / 'agents.db'}"
        environ = clean_environment(
            **SETTINGS, OUTLAST_STORE=address, OUTLAST_HTTP="127.0.0.1:0", GATE=str(folder), PYTHONPATH=str(PROGRAMS), **env,
        )  # fmt: skip
        command = [
            sys.executable,
            "-u",
            "-m",
            "outlast",
            "worker",
            PROGRAMS / flows,
            "--log",
            "json",
        ]
        super().__init__(command, folder, env=environ)

    def wait_for_file(self, name: str) -> None:
        """Wait for a file of the gate."""
        self.wait_until(lambda: list(self.folder.glob(name)))

    @property
    def url(self) -> str:
        lines = self.wait_until(
            lambda: [line for line in self.errors.splitlines() if "Serving HTTP at http" in line]
        )
        return lines[0].split("Serving HTTP at ")[1].split('"')[0].split()[0]

    def wait_until_ready(self) -> "Worker":
        self.wait_until(lambda: self.get("/ready").status_code == 200)
        return self

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=WAIT_SECONDS, trust_env=False)

    def scrape(self) -> dict[Series, float]:
        """Return every series by its name and label values, in the table's order, without histogram buckets."""
        return {
            (sample.name, *_values(sample.name, sample.labels)): sample.value
            for family in text_string_to_metric_families(self.get("/metrics").text)
            for sample in family.samples
            if "le" not in sample.labels
        }

    def scrape_until(self, *series: str, value: float | None = None) -> dict[Series, float]:
        """Scrape until a series is exported, with this value if one is given."""

        def found() -> dict[Series, float]:
            seen = self.scrape()
            return seen if series in seen and value in (None, seen[series]) else {}

        return self.wait_until(found)

    def open_to(self, name: str) -> None:
        (self.folder / name).touch()


LABELS = {metric.name: metric.labels for metric in METRICS}


def metric_of(name: str) -> str:
    """Return the metric of a sample. A histogram has several samples."""
    return name if name in LABELS else name.removesuffix("_count").removesuffix("_sum")


def _values(name: str, labels: dict[str, str]) -> list[str]:
    order = LABELS[metric_of(name)]
    assert sorted(order) == sorted(labels), name
    return [labels[label] for label in order]


def outside(folder: Path, action: Callable[[Outlast], Any]) -> Any:
    """Open Outlast in this process, do this with it, and close it."""

    async def main() -> Any:
        async with Outlast(f"sqlite:///{folder / 'agents.db'}", heartbeat=0.1) as app:
            return await action(app)

    return asyncio.run(main())
