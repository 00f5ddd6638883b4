"""Run the demo's scenario: start workers, send signals, and wait until every run is done.

    A   gets SIGTERM while the run `tides` is in a tool call; C starts at that moment
    B   is killed while the run `bees` is in a streamed answer
    C   finishes what A and B left, and `glaciers`, which waited for its editor

The workers use the defaults of `outlast worker`, except for the number of slots: A and B have one
slot, so that each has one run, and C has three.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from outlast.store.address import store_at
from outlast.sync import Outlast
from outlast.tools.chaos.fleet import Fleet
from outlast.tools.demo.agent import research
from outlast.tools.demo.facts import Facts
from outlast.tools.demo.fake_services import FakeServices
from outlast.tools.demo.monitor import Monitor
from outlast.tools.demo.topics import ANSWER_TOKENS, APPROVAL, KILLED, STOPPED, TOPICS, WAITING
from outlast.tools.demo.view import State
from outlast.tools.demo.workspace import QUEUE, address_of, isolated_environment, make_folder

AGENT = "outlast.tools.demo.agent"


def run_scenario(
    path: Path, show: Callable[[State], None], *, pace: float = 1.0, agent: str = AGENT
) -> Facts:
    """Run the scenario and leave no process behind, whatever happens.

    `agent` is the module that the workers load. Raise DemoRefused before anything is created, or
    DemoFailed if the scenario does not finish.
    """
    make_folder(path)
    address = address_of(path.absolute())
    services = FakeServices(pace)
    with (
        TemporaryDirectory(prefix="outlast-demo-", ignore_cleanup_errors=True) as logs,
        isolated_environment(),
        services.open() as url,
        Outlast(address, signals=0) as app,
        closing(store_at(address)) as store,
    ):
        store.open()
        command = ["worker", agent, "--store", address, "--queue", QUEUE, "--log", "json"]
        environ = {**os.environ, "MODEL_URL": url, "OUTBOX_URL": url}
        fleet = Fleet(0, command, environ, Path(logs), followed=False)
        monitor = Monitor(store, fleet, services, show, pace)
        try:
            _run_steps(app, fleet, services, monitor)
        finally:
            fleet.end_all()
        return monitor.facts()


def _run_steps(app: Outlast, fleet: Fleet, services: FakeServices, monitor: Monitor) -> None:
    # A run waits for its editor on no worker.
    a = monitor.start_worker("A", slots=1)
    monitor.wait_for("worker A to start", lambda: a.state == "alive")
    app.submit(research(WAITING, ask_first=True), id=WAITING, queue=QUEUE)
    # It may also wait for something else, such as the time to verify a message.
    monitor.wait_for(
        f"{WAITING} to wait for its editor", lambda: monitor.waits_for(WAITING, APPROVAL)
    )
    monitor.report(f"{WAITING} waits for its editor; no worker holds it now")

    # A gets SIGTERM in the middle of a tool call.
    app.submit(research(STOPPED), id=STOPPED, queue=QUEUE)
    monitor.wait_for(f"{STOPPED} to start on A", lambda: monitor.holder(STOPPED) == "A")
    b = monitor.start_worker("B", slots=1)
    app.submit(research(KILLED), id=KILLED, queue=QUEUE)
    monitor.wait_for(f"{KILLED} to start on B", lambda: monitor.holder(KILLED) == "B")
    monitor.wait_for(f"{STOPPED} to be in its last tool call", services.tool_call.reached.is_set)
    monitor.report(f"{STOPPED} is in a tool call on A; the reply is held until the signal")
    monitor.pause()
    fleet.term(a)
    monitor.report("A gets SIGTERM in the middle of the tool call", "warn")
    c = monitor.start_worker("C", slots=3)
    monitor.pause()
    services.tool_call.opened.set()
    monitor.wait_for_exit(a)

    # B is killed in the middle of a streamed answer.
    traffic = services.traffic
    monitor.wait_for(
        f"{KILLED} to be in the middle of its answer",
        lambda: services.stream.reached.is_set() and c.state == "alive" and monitor.answer_saved,
    )
    fleet.kill(b)
    token = f"token {traffic.arrived} of {ANSWER_TOKENS}"
    monitor.report(f"B is killed in the middle of an answer, after {token}", "bad")
    services.stream.opened.set()
    monitor.wait_for(
        f"{KILLED} to continue on C",
        lambda: monitor.holder(KILLED) == "C" or monitor.status(KILLED) == "done",
    )
    monitor.wait_for(f"{KILLED} to continue its answer", lambda: len(traffic.answer_requests) > 1)
    monitor.report(f"{KILLED} continues its answer after token {traffic.kept}", "good")

    # C finishes every run. Its exit is the last event, and nothing waits after it.
    app.send(WAITING, APPROVAL, value=True)
    monitor.report(f"the editor approves, as `outlast send {WAITING} {APPROVAL} true` would")
    monitor.wait_for(
        "every run to finish", lambda: all(monitor.status(topic) == "done" for topic in TOPICS)
    )
    fleet.term(c, kind="end")
    monitor.report("every run is done; C gets SIGTERM")
    monitor.wait_for_exit(c)
