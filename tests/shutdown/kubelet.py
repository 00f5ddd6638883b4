"""Play the kubelet: run workers in pods, probe and end them, and read their store from outside."""

import asyncio
import http.client
import json
import os
import re
import signal
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
sys.path[:0] = [str(HERE.parent / "fleet"), str(HERE.parent / "process"), str(PROGRAMS)]

import drain_flows as flows
import passing_grace
from fleet_tools import assert_nothing_recorded_was_redone

from outlast import Outlast
from outlast.shutdown.report import DrainReport
from support.outside_log import LogLine, OutsideLog
from support.processes import Program, clean_environment
from support.snapshots import Snapshot, read_snapshot
from support.stores import query
from support.waiting import WAIT_SECONDS, wait_for_state, wait_until

LONG = "OUTLAST_TEST_KILLS" in os.environ
"""Whether this is `make soak`."""

LEASE = 60.0
SETTINGS = {
    "LEASE": str(LEASE), "HEARTBEAT": "0.1", "RAMP": "0", "DEATH_BACKOFF": "0.05", "SUSPECT_PATIENCE": "0.5",
    "LINGER": "0.2", "RETURNED_RATE": "10000", "GRACE": "600",
}  # fmt: skip
"""The default settings of a pod. No drain takes as long as the grace unless it hangs, and the lease is longer
than any pause of a busy machine: both would only change the outcome of a test that fails anyway."""
PASSING = {**passing_grace.SETTINGS, "passing": True}
"""Of a pod whose grace passes when the test says so, with `Pod.let_pass`."""
STORE_PAUSE_SECONDS = 0.05
"""Between two reads of the whole store."""


def get(port: int, path: str, method: str = "GET") -> int:
    """Return the status of an answer, or 0 if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def assert_deadline_ended(code: int, expected: int) -> None:
    """Check the exit code of a process that only its deadline can end.

    The deadline's thread exits with `expected`. If a busy machine gives it no turn for 0.2 s, the timer or the
    guard behind it ends the process: see tests/shutdown/test_exit_timer.py and test_guard.py for each of them.
    """
    assert code in {expected, -signal.SIGALRM, -signal.SIGKILL}, code


class Pod(Program):
    """A process in a pod. With `http` it serves the probes on a port of its own."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        http: bool = False,
        passing: bool = False,
    ) -> None:
        own = {"OUTLAST_HTTP": "127.0.0.1:0"} if http else {}
        self._passed = folder / f"passed-{uuid4().hex}"
        if passing:
            own["PASSED"] = str(self._passed)
        settings = {f"OUTLAST_{name}": value for name, value in SETTINGS.items()}
        self.has_http = http
        self.is_terminating = False
        """Whether the pod is being deleted, so that no service sends requests to it."""
        super().__init__(command, folder, env=clean_environment(**{**settings, **env, **own}))

    @property
    def port(self) -> int:
        """The port of its HTTP server, from its log."""
        found = self.wait_until(
            lambda: re.search(r"Serving HTTP at http://127\.0\.0\.1:(\d+)", self.errors)
        )
        return int(found[1])

    @property
    def is_ready(self) -> bool:
        return get(self.port, "/ready") == 200

    def up(self) -> Self:
        """Wait until it works."""
        self.wait_until(lambda: '"working"' in self.errors and (not self.has_http or self.is_ready))
        return self

    def let_pass(self, seconds: float) -> None:
        """Let so much of its grace have passed. It must have been started with PASSING."""
        passing_grace.let_pass(self._passed, seconds)

    def wait_for_layer(self, layer: str) -> None:
        """Wait until its drain, seen over HTTP, is in this layer."""

        def is_reached() -> bool:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/drain", timeout=WAIT_SECONDS
            ) as answer:
                return json.load(answer)["layer"] == layer

        self.wait_until(is_reached, pause=STORE_PAUSE_SECONDS)

    def end(self) -> int:
        """Send SIGTERM, wait for the end and return the exit code."""
        self.terminate()
        return self.wait()


class Service:
    """Send requests, one after another, to all pods that are ready and not terminating."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        self._pods = pods
        self.answers: Counter[tuple[int, int]] = Counter()
        """How often a pod (by its pid) gave which answer."""
        self._rounds = 0
        self._endpoints: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_SECONDS)

    def _send(self) -> None:
        while not self._stop.wait(0.02):
            for pod in [pod for pod in self._pods if not pod.is_terminating]:
                if pod.pid in self._endpoints:
                    self.answers[pod.pid, get(pod.port, "/ready")] += 1
                elif pod.is_ready:
                    self._endpoints.add(pod.pid)
            self._rounds += 1

    def remove(self, pod: Pod) -> None:
        """Send nothing more to a pod, and wait until no request is on its way: what a preStop hook waits for."""
        pod.is_terminating = True
        enough = self._rounds + 2
        wait_until(lambda: self._rounds >= enough)

    @property
    def failures(self) -> dict[tuple[int, int], int]:
        """Requests that reached a pod which is not ready, or none."""
        return {key: count for key, count in self.answers.items() if key[1] != 200}


class Node:
    """Pods with `outlast worker` in them on one store, in one folder, which is where the outside log is."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address, self.log = folder, address, OutsideLog(folder)
        self.pods: list[Pod] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pod in self.pods:
            pod.kill()

    # -- pods

    def worker(
        self, *words: str, module: str = "drain_flows.py", concurrency: int = 100, **pod: Any
    ) -> Pod:
        """Start a worker, with words for its command line and settings in lower case, like grace=4."""
        command = [
            "worker", str(PROGRAMS / module), "--store", self.address, "--concurrency", str(concurrency), *words
        ]  # fmt: skip
        return self.outlast(*command, **pod)

    def outlast(self, *words: str, **pod: Any) -> Pod:
        """Start a command of the `outlast` command line."""
        return self.pod([sys.executable, "-W", "error", "-m", "outlast", *words], **pod)

    def pod(
        self,
        command: Sequence[str],
        *,
        http: bool = False,
        passing: bool = False,
        **settings: object,
    ) -> Pod:
        env = {f"OUTLAST_{name.upper()}": str(value) for name, value in settings.items()}
        pod = Pod(self.folder, command, env=env, http=http, passing=passing)
        self.pods.append(pod)
        return pod

    # -- this process, which is no worker

    def do(self, action: Callable[[Outlast], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with Outlast(self.address, signals=0) as app:
                return await action(app)

        return asyncio.run(main())

    def submit(self, calls: dict[str, Any], **options: Any) -> None:
        """Submit calls, by the ids of their runs."""
        self.do(lambda app: app.submit_many(list(calls.values()), ids=list(calls), **options))

    def drains(self) -> list[DrainReport]:
        """Return the reports, newest first."""
        return self.do(lambda app: app.drains(limit=1000))

    def open_gate(self, name: str = "gate") -> None:
        """Let the steps go on that wait for this file."""
        (self.folder / name).touch()

    # -- what there is to see

    def wait_until(self, condition: Callable[[], Any]) -> Any:
        """Wait for a condition that reads the store."""
        return wait_until(condition, self.describe, pause=STORE_PAUSE_SECONDS)

    def ask(self, sql: str, *values: Any) -> list[Any]:
        """Query the store itself: no worker is woken, and no sign of life is given."""
        return query(self.address, sql, *values)

    def snapshot(self) -> Snapshot:
        return read_snapshot(self.address)

    image = snapshot

    def statuses(self) -> Counter[str]:
        return Counter(dict(self.ask("SELECT status, count(*) FROM runs GROUP BY status")))

    def worker_of(self, id: str) -> int | None:
        """Return the pid of the worker that holds a run."""
        sql = "SELECT workers.pid FROM runs JOIN workers ON workers.id = runs.worker WHERE runs.id = ?"
        return next((pid for (pid,) in self.ask(sql, id)), None)

    def runs_of(self, pod: Pod) -> set[str]:
        """Return the ids of the runs that the worker of a pod holds."""
        sql = "SELECT runs.id FROM runs JOIN workers ON workers.id = runs.worker WHERE workers.pid = ?"
        return {id for (id,) in self.ask(sql, pod.pid)}

    def wait_until_draining(self, pod: Pod) -> None:
        """Wait until the store says that the worker of a pod drains."""
        sql = "SELECT 1 FROM workers WHERE pid = ? AND draining"
        pod.wait_until(lambda: self.ask(sql, pod.pid), pause=STORE_PAUSE_SECONDS)

    def wait_until_all_done(self) -> Snapshot:
        """Wait for as long as runs change their status or steps begin and end."""
        wait_for_state(
            lambda: (self.statuses(), len(self.log.update())),
            lambda state: set(state[0]) <= {"done"},
            self.describe,
            pause=STORE_PAUSE_SECONDS,
        )
        return self.snapshot()

    def lines(self, when: str = "before", pid: int | None = None) -> list[LogLine]:
        return [line for line in self.log.update() if line.when == when and pid in (None, line.pid)]

    def keys(self, when: str = "before", pid: int | None = None) -> set[tuple[str, str]]:
        """Return the (run, key) of the steps whose bodies began, or ended."""
        return {(line.run, line.key) for line in self.lines(when, pid)}

    def wait_until_begun(self, *steps: tuple[str, str]) -> None:
        """Wait until the bodies of these steps (run, key) have begun."""
        self.wait_until(lambda: set(steps) <= self.keys())

    def redone(self) -> dict[tuple[str, str], int]:
        """Return the steps (run, key) of which one attempt's body was executed more than once, and how often."""
        bodies = Counter((line.run, line.key, line.attempt) for line in self.lines())
        return {(run, key): count for (run, key, _), count in bodies.items() if count > 1}

    def under_way(self, pid: int) -> set[tuple[str, str]]:
        """Return the steps whose bodies this process began and did not end."""
        return self.keys("before", pid) - self.keys("after", pid)

    def assert_nothing_recorded_was_redone(self) -> None:
        assert_nothing_recorded_was_redone(self.snapshot(), self.log.update())

    def assert_no_deaths(self) -> None:
        assert self.snapshot().deaths() == []
        assert self.ask("SELECT id, deaths FROM runs WHERE deaths > 0") == []

    def describe(self) -> str:
        """Return what the message of a failed assertion should show."""
        rows = self.ask(
            "SELECT id, status, worker, deaths, interruptions, ready, due, reason FROM runs"
            " WHERE status <> 'done' LIMIT 8"
        )
        errors = [f"--- {pod.pid}\n{pod.errors[-2000:]}" for pod in self.pods[-4:]]
        return "\n".join([f"still {self.statuses()}", *map(str, rows), *errors])


def gated(count: int, gate: str = "gate") -> dict[str, Any]:
    """Return runs r0, r1, ... of three steps each, whose second step waits for a gate."""
    return {f"r{n}": flows.gated(gate) for n in range(count)}


def at_the_gate(count: int) -> set[tuple[str, str]]:
    """Return the steps of these runs that wait."""
    return {(f"r{n}", "wait_for#1") for n in range(count)}


__all__ = [
    "LEASE",
    "LONG",
    "PASSING",
    "PROGRAMS",
    "Node",
    "Pod",
    "Service",
    "assert_deadline_ended",
    "at_the_gate",
    "flows",
    "gated",
    "get",
    "passing_grace",
    "wait_until",
]
