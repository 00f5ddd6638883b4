"""Start workers, collect what they export over time, and let promtool evaluate the alerts."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from support.waiting import WAIT_SECONDS, wait_until

FLOWS = Path(__file__).with_name("alert_flows.py")
Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]

FAST = {
    "OUTLAST_LEASE": "2", "OUTLAST_STALL_MAX": "1", "OUTLAST_HEARTBEAT": "0.1", "OUTLAST_POLL": "0.3", "OUTLAST_RAMP": "0", "OUTLAST_GRACE": "20",
    "OUTLAST_EFFECT_MARGIN": "0", "OUTLAST_DEATH_BACKOFF": "0.1", "OUTLAST_SUSPECT_PATIENCE": "0.1",
}  # fmt: skip


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    return wait_until(condition, f"{what} did not happen")


class Fleet:
    """Workers on one store, each with its HTTP server. `with Fleet(folder) as fleet:`"""

    def __init__(self, folder: Path, store: str | None = None) -> None:
        self.folder, self.store = folder, store or f"sqlite:///{folder}/alerts.db"
        self.workers: list[tuple[subprocess.Popen[bytes], int]] = []
        self._ports: list[socket.socket] = []

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        for process, _ in self.workers:
            if process.poll() is None:
                process.kill()
            process.wait()
        for holder in self._ports:
            holder.close()

    def _env(self, **more: str) -> dict[str, str]:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")
        }
        return {**clean, **FAST, "OUTLAST_STORE": self.store, **more}

    def worker(self, queue: str = "default", concurrency: int = 20) -> int:
        """Its number."""
        port = self._hold_port()
        number = len(self.workers)
        with (self.folder / f"worker-{number}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "outlast", "worker", str(FLOWS), "--queue", queue, "--concurrency", str(concurrency)],
                env=self._env(OUTLAST_HTTP=f"127.0.0.1:{port}"), stderr=log, cwd=self.folder,
            )  # fmt: skip
        self.workers.append((process, port))
        until(lambda: self._ready(port), f"worker {number}")
        return number

    def _hold_port(self) -> int:
        """Return a port that no other process is given before the worker listens on it.

        A socket that is bound and does not listen keeps it; both use SO_REUSEADDR.
        """
        holder = socket.socket()
        self._ports.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])

    def _ready(self, port: int) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/ready", timeout=WAIT_SECONDS
            ) as answer:
                return answer.status == 200
        except OSError:
            return False

    def submit(self, workflow: str, *args: object, count: int = 1, attempts: int = 20) -> None:
        for number in range(count):
            words = [str(arg if arg != "N" else number) for arg in args]
            subprocess.run(
                [sys.executable, "-m", "outlast", "submit", f"{FLOWS}:{workflow}", *words],
                env=self._env(OUTLAST_MAX_ATTEMPTS=str(attempts)), check=True, capture_output=True, timeout=WAIT_SECONDS, cwd=self.folder,
            )  # fmt: skip

    def signal(self, number: int, which: signal.Signals) -> None:
        self.workers[number][0].send_signal(which)

    def kill(self, number: int) -> None:
        self.signal(number, signal.SIGKILL)
        self.workers[number][0].wait()

    def scrape(self, number: int) -> Scrape:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.workers[number][1]}/metrics", timeout=WAIT_SECONDS
        ) as answer:
            text = answer.read().decode()
        return {
            (
                sample.name,
                tuple(sorted({**sample.labels, "pod": str(number)}.items())),
            ): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, number: int, name: str, **labels: str) -> float:
        found = self.scrape(number)
        return found.get((name, tuple(sorted({**labels, "pod": str(number)}.items()))), 0.0)


class History:
    """Lay out what was scraped in minutes, for promtool. Each `add` holds for several."""

    def __init__(self) -> None:
        self._minutes: list[Scrape] = []

    def add(self, minutes: int, *scrapes: Scrape) -> int:
        """The last minute of it."""
        whole = {key: value for scrape in scrapes for key, value in scrape.items()}
        self._minutes += [whole] * minutes
        return len(self._minutes) - 1

    def judged(
        self, folder: Path, rules: str, expected: dict[int, dict[str, bool]]
    ) -> subprocess.CompletedProcess[str]:
        """By minute: which alerts fire then, and which do not."""
        asked = [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
            for minute, alerts in expected.items()
            for alert, fires in alerts.items()
        ]
        return self._tested(folder, rules, asked)

    def answers(
        self, folder: Path, rules: str, expr: str, minute: int, value: float
    ) -> subprocess.CompletedProcess[str]:
        """Whether the sum of an expression is this much then."""
        sample = {"labels": "{}", "value": value}
        return self._tested(folder, rules, [{"expr": f"sum({expr})", "eval_time": f"{minute}m", "exp_samples": [sample]}])  # fmt: skip

    def _tested(
        self, folder: Path, rules: str, asked: list[dict[str, Any]]
    ) -> subprocess.CompletedProcess[str]:
        (folder / "rules.yaml").write_text(rules)
        keys = sorted({key for scrape in self._minutes for key in scrape})
        series = [
            {
                "series": name
                + "{"
                + ",".join(f'{label}="{value}"' for label, value in labels)
                + "}",
                "values": " ".join(_number(scrape.get((name, labels))) for scrape in self._minutes),
            }
            for name, labels in keys
        ]
        test = {
            "rule_files": ["rules.yaml"], "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}],
        }  # fmt: skip
        (folder / "test.yaml").write_text(yaml.safe_dump(test, width=10_000))
        promtool = os.environ["PROMTOOL"]
        return subprocess.run([promtool, "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)  # fmt: skip


def _number(value: float | None) -> str:
    return "_" if value is None else repr(float(value))
