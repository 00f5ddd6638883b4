"""Workers that are scraped over HTTP, as Prometheus does it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from outlast import Outlast
from outlast.telemetry.names import METRICS

PROGRAMS = Path(__file__).parent / "programs_telemetry"
WAIT_SECONDS = 60.0
SETTINGS = {"OUTLAST_HEARTBEAT": "0.1", "OUTLAST_RAMP": "0", "OUTLAST_LEASE": "20"}

Series = tuple[str, ...]


class Worker:
    """`outlast worker`, and what it says at /metrics."""

    def __init__(self, folder: Path, flows: str = "tele_flows.py", command: str = "", **env: str) -> None:
        self.folder, self.address = folder, f"sqlite:///{folder / 'agents.db'}"
        self.out = folder / f"out-{time.monotonic_ns()}"
        quiet = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
        what = [command] if command else ["-m", "outlast", "worker", str(PROGRAMS / flows), "--log", "json"]
        environ = {
            **quiet, **SETTINGS, "OUTLAST_STORE": self.address, "OUTLAST_HTTP": "127.0.0.1:0", "GATE": str(folder), "PYTHONPATH": str(PROGRAMS), **env,
        }  # fmt: skip
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-u", *what], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, env=environ
            )  # fmt: skip

    @property
    def printed(self) -> str:
        return self.out.read_text()

    def until(self, condition: Callable[[], Any]) -> Any:
        give_up = time.monotonic() + WAIT_SECONDS
        while not (found := condition()):
            assert time.monotonic() < give_up and self.process.poll() is None, self.printed[-3000:]
            time.sleep(0.01)
        return found

    def until_there(self, name: str) -> None:
        """A file of the gate."""
        self.until(lambda: list(self.folder.glob(name)))

    @property
    def url(self) -> str:
        lines = self.until(lambda: [line for line in self.printed.splitlines() if "serves at http" in line])
        return lines[0].split("serves at ")[1].split('"')[0].split()[0]

    def until_ready(self) -> "Worker":
        self.until(lambda: self.get("/ready").status_code == 200)
        return self

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=WAIT_SECONDS, trust_env=False)

    def scrape(self) -> dict[Series, float]:
        """Every series by its name and its labels' values, in the order of the table; of histograms without their buckets."""
        return {
            (sample.name, *_values(sample.name, sample.labels)): sample.value
            for family in text_string_to_metric_families(self.get("/metrics").text)
            for sample in family.samples
            if "le" not in sample.labels
        }

    def open_to(self, name: str) -> None:
        (self.folder / name).touch()

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT_SECONDS)

    def ended(self) -> int:
        return self.process.wait(WAIT_SECONDS)


LABELS = {metric.name: metric.labels for metric in METRICS}


def metric_of(name: str) -> str:
    """Of a sample: a histogram has several names."""
    return name if name in LABELS else name.removesuffix("_count").removesuffix("_sum")


def _values(name: str, labels: dict[str, str]) -> list[str]:
    order = LABELS[metric_of(name)]
    assert sorted(order) == sorted(labels), name
    return [labels[label] for label in order]


def outside(folder: Path, action: Callable[[Outlast], Any]) -> Any:
    """With Outlast open here, for as long as this takes."""

    async def main() -> Any:
        async with Outlast(f"sqlite:///{folder / 'agents.db'}", heartbeat=0.1) as app:
            return await action(app)

    return asyncio.run(main())
