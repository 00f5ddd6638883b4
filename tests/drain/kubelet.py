"""A node that plays the kubelet against real processes, and the store of its pods as seen from outside.

What it does as the kubelet does: readiness and liveness are asked over HTTP; a pod that is deleted leaves its service's endpoints
(a moment later: they travel) while its preStop command executes, whose time counts into the grace; then comes SIGTERM; when
grace is over, SIGKILL. However long preStop took, two seconds are left for SIGTERM.
"""

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
sys.path[:0] = [str(HERE.parent / "fleet"), str(HERE.parent / "process"), str(PROGRAMS)]

import drain_flows as flows
from fleet_tools import assert_nothing_recorded_was_redone
from process_tools import Image, Line, Log, chance, look, until

from outlast import Outlast
from outlast.drain.report import DrainReport
from places import peek
from spawned import spawn

LONG = "OUTLAST_TEST_KILLS" in os.environ
"""The long form, as `make soak` has it."""

MINIMUM_GRACE = 2.0
"""The kubelet's: what SIGTERM gets, whatever preStop has used up."""
PERIOD = 0.05
"""Seconds between two probes of one pod."""
PROPAGATION = 0.2
"""Seconds until everybody who routes has heard that a pod is no endpoint any more."""
LIVENESS_FAILURES = 3

SETTINGS = {
    "LEASE": "10", "HEARTBEAT": "0.1", "RAMP": "0", "DEATH_BACKOFF": "0.05", "SUSPECT_PATIENCE": "0.5",
    "LINGER": "0.2", "RETURNED_RATE": "10000", "GRACE": "8",
}  # fmt: skip
"""Short times, as in tests/fleet."""
LEASE = float(SETTINGS["LEASE"])
SLACK = 1.5
"""Seconds for the tests' own polling, and for a busy machine: what is promised is GRACE."""


def get(port: int, path: str, method: str = "GET", timeout: float = 2.0) -> int:
    """The status of an answer; 0 if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Ended(NamedTuple):
    """How a pod ended."""

    code: int
    """Its exit code; minus the signal that ended it."""
    seconds: float
    """From SIGTERM until it was gone."""
    killed: bool
    """By the kubelet, because grace was over."""


class Pod:
    """A process, and what the kubelet knows of it."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        *,
        env: dict[str, str],
        pre_stop: Sequence[str] | None = None,
        http: bool = False,
    ) -> None:
        self.folder, self._pre_stop = folder, pre_stop
        self.port = free_port() if http else 0
        self.out = Path(tempfile.mkstemp(prefix="out-", dir=folder)[1])
        self.err = self.out.with_name(self.out.name.replace("out-", "err-"))
        self.ready = False
        """What its last readiness probe said."""
        self.unready_at: float | None = None
        self.terminating_at: float | None = None
        """Since when it is being deleted."""
        self.liveness_failures = 0
        """Liveness probes in a row that failed, before it was deleted."""
        self.pre_stop_code: int | None = None
        own = {"OUTLAST_HTTP": f"127.0.0.1:{self.port}"} if http else {}
        outer = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
        self.env = {**outer, **{f"OUTLAST_{name}": value for name, value in SETTINGS.items()}, **env, **own}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = spawn(command, stdout=out, stderr=err, cwd=folder, env=self.env)
        self.pid = self.process.pid
        self._probe: threading.Thread | None = None
        if http:
            self._probe = threading.Thread(target=self._probing, daemon=True)
            self._probe.start()

    # -- what it says

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def errors(self) -> str:
        return self.err.read_text(errors="replace")

    def up(self) -> Self:
        """Wait until it works."""

        def works() -> bool:
            assert not self.ended, self.errors()
            return '"working"' in self.errors() and (not self.port or self.ready)

        until(works)
        return self

    # -- probes

    def _probing(self) -> None:
        while not self.ended:
            ready = get(self.port, "/ready") == 200
            if self.ready and not ready:
                self.unready_at = time.monotonic()
            self.ready = ready
            if self.terminating_at is None:  # what is being ended is not asked whether it lives
                alive = get(self.port, "/health") == 200
                self.liveness_failures = 0 if alive or not self.has_been_ready else self.liveness_failures + 1
            time.sleep(PERIOD)
        self.ready = False

    @property
    def has_been_ready(self) -> bool:
        """Its start-up probe has succeeded: until then it is not asked whether it lives."""
        return self.ready or self.unready_at is not None

    @property
    def is_endpoint(self) -> bool:
        """Whether requests are sent to it. Whoever sends them learns of a change a moment later."""
        now = time.monotonic()
        if self.terminating_at is not None and now - self.terminating_at > PROPAGATION:
            return False
        return self.ready or (self.unready_at is not None and now - self.unready_at < PROPAGATION)

    # -- its end

    def signal(self, number: int) -> float:
        """When."""
        at = time.monotonic()
        self.process.send_signal(number)
        return at

    def delete(self, grace: float) -> Ended:
        """As the kubelet ends a pod. A grace of 0 is no grace at all: a node that goes away."""
        began = self.terminating_at = time.monotonic()
        if not grace:
            return self._killed(began)
        if self._pre_stop is not None:
            self._run_pre_stop(grace)
        left = max(grace - (time.monotonic() - began), MINIMUM_GRACE)
        at = self.signal(signal.SIGTERM)
        try:
            code = self.process.wait(left)
        except subprocess.TimeoutExpired:
            return self._killed(at)
        return Ended(code, time.monotonic() - at, killed=False)

    def restart_if_dead(self, grace: float) -> Ended:
        """Liveness failed so often that the kubelet ends it."""
        until(lambda: self.liveness_failures >= LIVENESS_FAILURES)
        return self.delete(grace)

    def _run_pre_stop(self, grace: float) -> None:
        assert self._pre_stop is not None
        with (self.folder / "pre_stop").open("ab") as out:
            hook = spawn(self._pre_stop, stdout=out, stderr=out, cwd=self.folder, env=self.env)
            try:
                self.pre_stop_code = hook.wait(grace)
            except subprocess.TimeoutExpired:
                hook.kill()
                hook.wait()

    def _killed(self, at: float) -> Ended:
        self.process.kill()
        return Ended(self.process.wait(), time.monotonic() - at, killed=True)

    def wait(self, since: float, seconds: float = 30.0) -> Ended:
        """Wait for its end, so many seconds after `since`."""
        code = self.process.wait(seconds)
        return Ended(code, time.monotonic() - since, killed=False)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._probe is not None:
            self._probe.join(10)


class Service:
    """Sends requests, one after another, to whichever pods are its endpoints. `with Service(pods) as service: ...`"""

    def __init__(self, pods: Callable[[], Sequence[Pod]]) -> None:
        self._pods = pods
        self.answers: Counter[tuple[int, int]] = Counter()
        """How often a pod (its pid) gave which answer."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _send(self) -> None:
        while not self._stop.wait(0.002):
            for pod in [pod for pod in self._pods() if pod.is_endpoint]:
                if pod.is_endpoint:
                    # The request is for the route that says whether it reached somebody who is ready.
                    self.answers[pod.pid, get(pod.port, "/ready")] += 1

    @property
    def astray(self) -> dict[tuple[int, int], int]:
        """Requests that reached a worker which is not ready, or nobody."""
        return {key: count for key, count in self.answers.items() if key[1] != 200}


class Node:
    """Pods with `outlast worker` in them on one store, in one folder, which is where the outside log is."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address, self.log = folder, address, Log(folder)
        self.pods: list[Pod] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pod in self.pods:
            pod.kill()

    # -- pods

    def worker(self, *words: str, module: str = "drain_flows.py", concurrency: int = 100, **pod: Any) -> Pod:
        """A pod with a worker in it. Words for its command line; settings in lower case, like grace=4."""
        command = [
            "worker", str(PROGRAMS / module), "--store", self.address, "--concurrency", str(concurrency), *words
        ]  # fmt: skip
        return self.pod([sys.executable, "-W", "error", "-m", "outlast", *command], **pod)

    def pod(
        self,
        command: Sequence[str],
        *,
        pre_stop: Sequence[str] | None = None,
        http: bool = False,
        **settings: object,
    ) -> Pod:
        env = {f"OUTLAST_{name.upper()}": str(value) for name, value in settings.items()}
        pod = Pod(self.folder, command, env=env, pre_stop=pre_stop, http=http)
        self.pods.append(pod)
        return pod

    # -- this process, which is no worker

    def do(self, action: Callable[[Outlast], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with Outlast(self.address, signals=0) as app:
                return await action(app)

        return asyncio.run(main())

    def submit(self, calls: dict[str, Any], **options: Any) -> None:
        """Calls by the ids of their runs."""
        self.do(lambda app: app.submit_many(list(calls.values()), ids=list(calls), **options))

    def drains(self) -> list[DrainReport]:
        """Newest first."""
        return self.do(lambda app: app.drains(limit=1000))

    # -- what there is to see

    def ask(self, sql: str, *values: Any) -> list[Any]:
        """The store itself: nobody is woken, and no sign of life is given."""
        connection = peek(self.address)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def image(self) -> Image:
        return look(self.address)

    def statuses(self) -> Counter[str]:
        return Counter(dict(self.ask("SELECT status, count(*) FROM runs GROUP BY status")))

    def worker_of(self, id: str) -> int | None:
        """The pid of whoever has a run in hand."""
        sql = "SELECT workers.pid FROM runs JOIN workers ON workers.id = runs.worker WHERE runs.id = ?"
        return next((pid for (pid,) in self.ask(sql, id)), None)

    def until_all_done(self, seconds: float = 60.0) -> Image:
        deadline = time.monotonic() + seconds
        while set(statuses := self.statuses()) - {"done"}:
            assert time.monotonic() < deadline, f"still {statuses}: {self.tell()}"
            time.sleep(0.02)
        return self.image()

    def lines(self, when: str = "before", pid: int | None = None) -> list[Line]:
        return [line for line in self.log.update() if line.when == when and pid in (None, line.pid)]

    def until_begun(self, *ids: str) -> None:
        """Until a step of each of these runs is under way, or has been."""
        until(lambda: set(ids) <= {line.run for line in self.lines()})

    def redone(self) -> dict[tuple[str, str], int]:
        """Steps (run, key) of which one attempt's body was executed more than once, and how often."""
        bodies = Counter((line.run, line.key, line.attempt) for line in self.lines())
        return {(run, key): count for (run, key, _), count in bodies.items() if count > 1}

    def under_way(self, pid: int) -> set[tuple[str, str]]:
        """Steps whose bodies this process began and did not end."""
        ended = {(line.run, line.key) for line in self.lines("after", pid)}
        return {(line.run, line.key) for line in self.lines("before", pid)} - ended

    def assert_nothing_recorded_was_redone(self) -> None:
        assert_nothing_recorded_was_redone(self.image(), self.log.update())

    def assert_no_deaths(self) -> None:
        assert self.image().deaths() == []
        assert self.ask("SELECT id, deaths FROM runs WHERE deaths > 0") == []

    def tell(self) -> str:
        """For the message of a failed assertion."""
        rows = self.ask(
            "SELECT id, status, worker, deaths, interruptions, ready, due, reason FROM runs"
            " WHERE status <> 'done' LIMIT 8"
        )
        errors = [f"--- {pod.pid}\n{pod.errors()[-2000:]}" for pod in self.pods[-4:]]
        return "\n".join([*map(str, rows), *errors])


__all__ = [
    "LONG",
    "Ended",
    "Node",
    "Pod",
    "Service",
    "chance",
    "flows",
    "get",
    "until",
]
