"""Check manifests before they are applied: settings, times, signals and probes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from outlast.settings import Settings
from outlast.settings.http_address import is_for_this_machine, parse
from outlast.settings.variables import PREFIX
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, counted, error, note, ok, warning
from outlast.tools.doctor.grace import MARGIN_MIN, leases
from outlast.tools.doctor.manifests.settings import (
    GRACE_NAMES,
    for_each_worker,
    is_hidden,
    understood,
)
from outlast.tools.doctor.manifests.shell import InFront, Shell, in_front
from outlast.tools.doctor.manifests.workload import Workload

PROBE_SECONDS_MIN = 20.0
"""How long a liveness probe should fail before the worker is killed."""
DRAIN_SIGNALS = ("TERM", "15", "INT", "2")
_KILL_MODES = {
    "control-group": "processes that steps have started get SIGTERM together with the worker, and "
    "fail before they can end",
    "process": "processes that steps have started are left behind when the worker ends",
    "none": "nothing is stopped at all",
}


def settings(facts: Facts) -> Iterator[Finding]:
    found = [one for one in facts.workloads if one.is_ours]
    if not found:
        yield warning(
            "these files have no worker of Outlast, neither an OUTLAST_ variable nor a command "
            "`outlast`: nothing was checked.",
            "Name the file that has it. If its image calls `outlast`, say so here: "
            "command: [outlast, worker, …].",
        )
    for one in found:
        if one.env_unquoted:
            yield error(
                f"the value of {', '.join(one.env_unquoted[:5])} is not a string: Kubernetes "
                "refuses the whole manifest.",
                'Quote it: value: "60".',
                one.where,
            )
        _, wrong = understood(one)
        for why in wrong.values():
            fix = "Fix the variable. Checks that depend on it were skipped."
            yield error(str(why), fix, one.where)
        if not wrong:
            many = sum(name.startswith(PREFIX) for name in one.env)
            verb = "is" if many == 1 else "are"
            yield ok(f"{counted(many, 'setting')} {verb} in order.", one.where)


@for_each_worker(*GRACE_NAMES)
def grace(worker: Workload, settings: Settings) -> Iterator[Finding]:
    if worker.period is None:
        return
    name, period, is_default = worker.period
    before = worker.pre_stop or 0.0
    needs = before + settings.grace + MARGIN_MIN
    parts = f"grace {settings.grace:g} s" + (f" after a preStop of {before:g} s" if before else "")
    if is_hidden(worker, GRACE_NAMES):
        yield note(
            "OUTLAST_GRACE is not in this file: it may be in a secret, a config map or another "
            "file.",
            f"Compare it with {name} yourself, or name it here.",
        )
        return
    if period is None:
        what = f"{name} is unknown: it is not in this file."
        yield note(what, f"It must be {settings.grace + MARGIN_MIN:g} s or more.")
        return
    if worker.pre_stop is None:
        yield note(
            "the duration of the preStop command is unknown.",
            "Give it a time-out: outlast drain --wait --timeout 10.",
        )
    has = f"{name} is {period:g} s{' by default' if is_default else ''}"
    if period < needs:
        yield error(
            f"{has}, and the worker takes up to {parts}: SIGKILL cuts its drain short.",
            f"Set {name} to {math.ceil(needs + 3)} or more, or lower OUTLAST_GRACE.",
        )
    else:
        yield ok(f"{has}, enough for {parts}.")


@for_each_worker("OUTLAST_LEASE", "OUTLAST_STALL_MAX", "OUTLAST_POLL")
def lease(_: Workload, settings: Settings) -> Iterator[Finding]:
    found = list(leases(settings))
    yield from found or [ok(f"lease {settings.lease:g} s, stall_max {settings.stall_max:g} s.")]


@for_each_worker()
def signals(worker: Workload, _: Settings) -> Iterator[Finding]:
    found: list[Finding] = []
    if worker.command.shell is not None:
        found += _of_shell(worker.command.shell, by_systemd=worker.kind == "systemd")
    signal = worker.stop_signal
    if signal is not None and signal.upper().removeprefix("SIG") not in DRAIN_SIGNALS:
        what = f"it is stopped by {signal}, which does not begin a drain."
        found.append(error(what, "Use SIGTERM."))
    if worker.kill_mode in _KILL_MODES:
        what = f"KillMode={worker.kill_mode}: {_KILL_MODES[worker.kill_mode]}."
        found.append(warning(what, "Set KillMode=mixed."))
    yield from found
    if not found and (worker.command.words or worker.kind in ("compose", "systemd", "Dockerfile")):
        yield ok("SIGTERM goes to the worker itself.")


def _of_shell(shell: Shell, *, by_systemd: bool) -> Iterator[Finding]:
    line = shell.line or ""
    front = InFront.TRAPS if shell.script is not None else in_front(line, shell.name)
    if front is InFront.TRAPS:
        what = "a shell with a trap" if shell.script is None else f"the script {shell.script}"
        yield note(
            f"{what} is in front of the worker: whether SIGTERM gets through is unknown.",
            "End it with `exec`: the worker then replaces the shell.",
        )
    if front is InFront.BASH:
        yield note(
            "bash runs the command. From version 5.1 on, it replaces itself with the worker.",
            "Put `exec` in front of the command, which works in every shell.",
        )
    if front is InFront.STAYS:
        first = "the process that systemd started" if by_systemd else "PID 1"
        fix = 'Use the exec form, ["outlast", "worker", …], or put `exec` in front.'
        if by_systemd:
            fix = "Name the worker in ExecStart without a shell, or put `exec` in front of it."
        yield error(
            f"the command is given to a shell ({line[:60]!r}): the shell is {first}, gets "
            "SIGTERM, and does not pass it on.",
            fix,
        )


@for_each_worker()
def http(worker: Workload, settings: Settings) -> Iterator[Finding]:
    server = f"the HTTP server ({settings.http})"
    if not settings.http:
        return
    if is_for_this_machine(settings.http):
        yield ok(f"{server} is for this machine only.")
    elif worker.env.get("OUTLAST_HTTP_SECRET") or "OUTLAST_HTTP_SECRET_FILE" in worker.env:
        yield ok(f"{server} is open to others, and has a secret.")
    else:
        yield warning(
            f"{server} is open to others and has no secret.",
            "Set OUTLAST_HTTP_SECRET from a secret. Behind a sidecar every request comes from "
            "loopback, and may end the worker.",
        )


@for_each_worker()
def probes(worker: Workload, settings: Settings) -> Iterator[Finding]:
    patience = worker.liveness_patience
    if worker.liveness.rstrip("/").endswith("/ready"):
        yield error(
            "the liveness probe requests /ready, which returns 503 in a drain: the kubelet kills a "
            "worker that is draining.",
            "Ask for /health.",
        )
    elif unanswered := _unanswered(worker, settings.http):
        yield error(unanswered, "Set OUTLAST_HTTP=0.0.0.0:PORT, with the port of the probes.")
    elif worker.liveness and patience < PROBE_SECONDS_MIN:
        yield warning(
            f"the liveness probe fails after {patience:g} s: a worker whose loop is busy for that "
            "long is killed, with all of its runs.",
            "Raise failureThreshold or periodSeconds.",
        )
    elif worker.probed:
        yield ok("no probe ends a drain.")
    elif worker.kind in ("Deployment", "StatefulSet"):
        yield note(
            "there are no probes: a worker that hangs is not restarted.",
            "Set OUTLAST_HTTP=0.0.0.0:8080. Add a livenessProbe for /health and a readinessProbe "
            "for /ready.",
        )


def _unanswered(worker: Workload, address: str) -> str:
    """Return why the kubelet, which probes from outside the pod, gets no answer. Empty if it may.

    Without OUTLAST_HTTP, the program serves the probes itself.
    """
    if not address or not worker.probe_ports:
        return ""
    if is_for_this_machine(address):
        return (
            f"the HTTP server listens only inside the pod ({address}), but the kubelet "
            "connects from outside: every probe fails."
        )
    port = parse(address)[1]
    others = [asked for asked in worker.probe_ports if asked != port]
    if others and (worker.command.arguments or ("",))[0] == "worker":
        return f"the probes use port {others[0]}, but the HTTP server listens on {port}."
    return ""


@for_each_worker()
def job(worker: Workload, _: Settings) -> Iterator[Finding]:
    if worker.kind not in ("Job", "CronJob"):
        return
    if worker.ignores_75:
        yield ok("exit code 75, interrupted, is not counted as a failure.")
    else:
        yield warning(
            "an interrupted run exits with 75, which counts against backoffLimit here.",
            "Add a podFailurePolicy with action Ignore for exit code 75, and restartPolicy: Never "
            "(`outlast explain job`).",
        )
