"""Run one chaos experiment from start to verdict.

The experiment starts workers, submits work, injects the planned faults, waits for recovery, ends
the workers and checks the result.

Every process it starts dies with it. The thread that runs the experiment starts the processes and
must stay alive until they are gone.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

from outlast.errors import StoreError, StoreUnavailable
from outlast.store.rows import RunQuery
from outlast.tools.chaos.checks import check
from outlast.tools.chaos.claims import Claims
from outlast.tools.chaos.experiment_checks import check_experiment
from outlast.tools.chaos.faults import FaultInjector
from outlast.tools.chaos.findings import Scope
from outlast.tools.chaos.fleet import Fleet
from outlast.tools.chaos.ledger_client import PORT
from outlast.tools.chaos.ledger_process import LedgerProcess, run_ledger
from outlast.tools.chaos.ledger_summary import LedgerSummary
from outlast.tools.chaos.liveness_check import number_of
from outlast.tools.chaos.load_generator import LoadGenerator
from outlast.tools.chaos.options import ChaosFailed, ChaosRefused, Options, worker_environ
from outlast.tools.chaos.plan import Fault
from outlast.tools.chaos.store_setup import StoreSetup, set_up_store
from outlast.tools.chaos.verdict import Verdict
from outlast.tools.chaos.view import View
from outlast.tools.chaos.work import Work

TICK = 0.02
UP_SECONDS = 60.0
"""How long the first workers may take to come up."""
END_SECONDS = 10.0
"""How long the load generator may take to stop after an interruption or a failure."""
VISIT_SECONDS = 10.0
"""How long a single-process store may stay locked after its process is gone."""
UNDER_WAY = 3
"""Limit on work in flight, as a multiple of all workers' slots. Submission pauses at the limit."""


@dataclass
class Outcome:
    """Hold the result of an experiment: everything a report needs."""

    options: Options
    place: str
    began: float
    """By this host's clock, like all times here."""
    seconds: float
    settled: float | None
    """Seconds from the end of the storm until everything had ended. None if it did not."""
    fleet: Fleet
    faults: FaultInjector
    load: LoadGenerator
    claims: Claims
    summary: LedgerSummary | None
    verdict: Verdict
    planned: int
    kept: Path | None = None
    """Folder with the data of chaos's own server. Set only if a check is violated."""


class Experiment:
    def __init__(self, options: Options, work: Work, folder: Path, view: View) -> None:
        """Prepare an experiment.

        `folder` must exist; it receives the workers' logs and the ledger.
        """
        self._options = options
        self._work = work
        self._folder = folder
        self._view = view
        self._ledger: LedgerProcess | None = None
        """The running ledger. None if the workload uses none."""

    def run(self) -> Outcome:
        options = self._options
        if sys.platform == "win32":
            raise ChaosRefused(
                "chaos needs the signals of POSIX systems and does not run on Windows."
            )
        with set_up_store(options.store, options.server, self._folder) as where:
            if where.exclusive and options.workers != 1:
                raise ChaosRefused(
                    "a file: store is for one process at a time: pass --workers 1, and chaos "
                    "submits while no worker has it open."
                )
            since = _made_ready(where, options, self._work)
            ahead = since - time.time()
            with run_ledger(self._folder) if options.demo else nullcontext() as self._ledger:
                port = None if self._ledger is None else self._ledger.port
                load = LoadGenerator(
                    where.address,
                    self._work,
                    rate=options.rate,
                    under_way_max=UNDER_WAY * options.workers * options.concurrency,
                    ledger=port,
                )
                fleet = self._fleet(where, port)
                faults = FaultInjector(
                    fleet,
                    options.grace,
                    server=where.server,
                    server_signal=where.server_signal,
                    keeps_everybody_out=where.keeps_everybody_out(),
                )
                if where.exclusive:
                    fleet.before_start = lambda: _visit(load)
                outcome = self._carried_through(where, since, ahead, load, fleet, faults)
                if outcome.verdict.violated and options.server is not None:
                    outcome.kept = self._kept(where, self._folder / options.server)
                return outcome

    def _carried_through(
        self,
        where: StoreSetup,
        since: float,
        ahead: float,
        load: LoadGenerator,
        fleet: Fleet,
        faults: FaultInjector,
    ) -> Outcome:
        options = self._options
        began = time.time()
        try:
            if not where.exclusive:
                load.start()
            fleet.start_all()
            self._until_up(fleet, load, faults)
            self._view.phase = "injecting faults"
            fleet.began = time.monotonic()
            began = time.time()
            fleet.spans.clear()
            for member in fleet.there():
                member.since = fleet.began
            planned = options.plan()
            self._storm(planned, fleet, load, faults)
            settled = self._settle(where, fleet, load, faults)
            self._end(where, fleet, load, faults)
            seconds = time.monotonic() - fleet.began
            load.stop()
        finally:
            fleet.end_all()
            # A thread that still submits while the interpreter ends can print errors or crash it.
            load.stop(END_SECONDS)
        summary = None if self._ledger is None else self._ledger.summary()
        claims = Claims(
            fleet.members,
            summary.signs if summary is not None else None,
            ahead=ahead,
            lease=options.lease,
        )
        self._view.report("checking the outcome")
        verdict = self._checked(where, since, load, claims, summary)
        check_experiment(verdict, options, fleet, faults, load)
        verdict["no stale fence"].facts["lives_refused_by_the_store"] = claims.overtaken
        return Outcome(
            options,
            where.store().place,
            began,
            seconds,
            settled,
            fleet,
            faults,
            load,
            claims,
            summary,
            verdict,
            len(planned),
        )

    # -- the parts of an experiment

    def _kept(self, where: StoreSetup, folder: Path) -> Path | None:
        """Keep the data of chaos's own server for analysis.

        Return the folder, or None on failure.
        """
        try:
            where.keep(folder)
        except OSError as error:
            self._view.report(f"the server's data could not be kept in {folder}: {error}")
            return None
        return folder

    def _fleet(self, where: StoreSetup, port: int | None) -> Fleet:
        options = self._options
        command = [
            "worker",
            *options.modules,
            "--store",
            where.address,
            "--queue",
            self._work.queue,
        ]
        command += ["--concurrency", str(options.concurrency), "--log", "json"]
        own = {
            "CHAOS_ITEMS": self._work.items or "",
            **({PORT: str(port)} if port is not None else {}),
        }
        environ = {**worker_environ(options, os.environ), **own}
        return Fleet(options.workers, command, environ, self._folder)

    def _until_up(self, fleet: Fleet, load: LoadGenerator, faults: FaultInjector) -> None:
        until = time.monotonic() + UP_SECONDS
        while len(fleet.there("alive")) < self._options.workers:
            self._tick(fleet, load, faults)
            if fleet.surprises:
                raise ChaosFailed(f"a worker did not start: {fleet.surprises[0]}")
            if time.monotonic() > until:
                raise ChaosFailed(f"the workers did not start: {fleet.members[0].tail()}")

    def _storm(
        self, planned: Sequence[Fault], fleet: Fleet, load: LoadGenerator, faults: FaultInjector
    ) -> None:
        left = deque(planned)
        while (now := time.monotonic() - fleet.began) < self._options.seconds:
            while left and left[0].at <= now:
                faults.inject(left.popleft())
            self._tick(fleet, load, faults)

    def _settle(
        self, where: StoreSetup, fleet: Fleet, load: LoadGenerator, faults: FaultInjector
    ) -> float | None:
        """Wait until everything has ended and return the seconds that took.

        Return None after the time limit. The checks then report what is left.
        """
        began = time.monotonic()
        until = began + self._options.settle
        load.close()
        self._view.phase = "settling"
        turn = began + 3.0
        while not (load.idle and faults.quiet):
            if time.monotonic() > until:
                return None
            self._tick(fleet, load, faults)
            if (
                where.exclusive
                and faults.quiet
                and time.monotonic() > turn
                and fleet.there("alive")
            ):
                # The next worker's start lets the load generator visit the store first.
                for member in fleet.there("alive"):
                    faults.drain(member)
                turn = time.monotonic() + 5.0
        return time.monotonic() - began

    def _end(
        self, where: StoreSetup, fleet: Fleet, load: LoadGenerator, faults: FaultInjector
    ) -> None:
        """Drain all workers and wait until the server is back, so that the records can be read."""
        self._view.phase = "ending"
        fleet.followed = False
        for member in fleet.there("stopped"):
            fleet.go_on(member)
        for member in fleet.there("starting", "alive"):
            faults.drain(member)
        while fleet.there() or not (where.server is None or where.server.is_up):
            self._tick(fleet, load, faults)

    def _tick(self, fleet: Fleet, load: LoadGenerator, faults: FaultInjector) -> None:
        fleet.check()
        faults.go_on()
        if self._ledger is not None:
            self._ledger.check_alive()
        if load.failure is not None:
            raise ChaosFailed(f"work could not be submitted: {load.failure!r}") from load.failure
        self._view.show(fleet, load, faults)
        time.sleep(TICK)

    def _checked(
        self,
        where: StoreSetup,
        since: float,
        load: LoadGenerator,
        claims: Claims,
        summary: LedgerSummary | None,
    ) -> Verdict:
        store = where.store()
        store.open()
        with closing(store):
            return check(
                store,
                Scope(
                    since=since,
                    objective=self._options.objective,
                    queues=self._work.queues,
                    over=True,
                    thorough=True,
                    summary=summary,
                    acknowledged=load.acknowledged,
                    amiss=self._work.amiss,
                    recovered=claims.recovered,
                ),
            )


def _made_ready(where: StoreSetup, options: Options, work: Work) -> float:
    """Return the store's time.

    Raise ChaosRefused if the store is in use or has this seed's runs.
    """
    store = where.store()
    if options.store is not None and options.store.startswith("memory:"):
        raise ChaosRefused(
            "a memory: store ends with the process that opened it: workers cannot share it."
        )
    store.open()
    with closing(store):
        now = store.now()
        others = [
            worker.id for worker in store.workers() if not number_of(worker.lease_until) <= now
        ]
        left = store.runs(RunQuery(statuses=("queued", "running"), limit=1))
        if (others or left) and not options.shared:
            what = (
                f"{len(others)} workers are active"
                if others
                else f"there are unfinished runs ({left[0].id})"
            )
            raise ChaosRefused(
                f"{what} in the store at {store.place}. Chaos kills only workers that it starts, "
                "but its load and its sweeps affect every user of the store: give it a store of "
                "its own, or pass --shared."
            )
        if any(store.runs(RunQuery(queue=queue, limit=1)) for queue in work.queues):
            raise ChaosRefused(
                f"seed {options.seed} was used in the store at {store.place} before, and its runs "
                "are still there: the same ids are not executed again. Choose another --seed, or "
                "another store."
            )
        return now


def _visit(load: LoadGenerator) -> None:
    """Let the load generator submit and poll while no worker has the store open."""
    until = time.monotonic() + VISIT_SECONDS
    while True:
        try:
            load.visit()
        except StoreUnavailable as error:
            if time.monotonic() > until:
                raise ChaosFailed(f"the store is still in use: {error}") from error
            time.sleep(0.05)
        except StoreError as error:
            raise ChaosFailed(f"the store cannot be opened: {error}") from error
        else:
            return
