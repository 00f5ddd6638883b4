"""Check manifests before they are applied."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from outlast.errors import SettingsError
from outlast.settings import Settings
from outlast.settings.http_address import is_for_this_machine, parse
from outlast.settings.load import Loaded, load
from outlast.settings.third_party_env import GRACE, STORES
from outlast.settings.variables import NO_FILES, PREFIX
from outlast.tools.doctor.commands import InFront, in_front
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, counted, error, note, ok, warning
from outlast.tools.doctor.grace import MARGIN_MIN, leases
from outlast.tools.doctor.workload import ELSEWHERE, Workload

ROLLOUT_SECONDS = 3_600.0
START_SECONDS = 30.0
"""Rough time until a new pod is ready."""


_STORE_NAMES = ("OUTLAST_STORE", *STORES)
_GRACE_NAMES = ("OUTLAST_GRACE", GRACE)


def _mine(facts: Facts) -> list[Workload]:
    return [one for one in facts.workloads if one.is_worker]


def _why_not(env: Mapping[str, str]) -> SettingsError | None:
    """Return why these variables are not valid settings. None if they are."""
    try:
        load({}, {**env, **NO_FILES})
    except SettingsError as error:
        return error
    return None


def _understood(workload: Workload) -> tuple[dict[str, str], dict[str, SettingsError]]:
    """Return the manifest's valid variables, and the error of each invalid one."""
    env = {
        name: value
        for name, value in workload.env.items()
        if value != ELSEWHERE and not name.endswith("_FILE")
    }
    if _why_not(env) is None:
        return env, {}
    left = {
        name: env.pop(name)
        for name in list(env)
        if name.upper().startswith(PREFIX) or name == GRACE
    }
    # One variable may need another, as a reserve needs the grace that it is a part of.
    while True:
        fits = next((name for name in left if _why_not({**env, name: left[name]}) is None), None)
        if fits is None:
            break
        env[fits] = left.pop(fits)
    tried = {name: _why_not({**env, name: value}) for name, value in left.items()}
    return env, {name: why for name, why in tried.items() if why is not None}


def _loaded(workload: Workload, *needed: str) -> Loaded | None:
    """Return the settings as far as the manifest has them.

    Return None if one of the needed variables is invalid. `settings` reports that.
    """
    env, wrong = _understood(workload)
    return None if set(needed) & set(wrong) else load({}, {**env, **NO_FILES})


def settings_of(workload: Workload, *needed: str) -> Settings | None:
    loaded = _loaded(workload, *needed)
    return None if loaded is None else loaded.settings


def _is_hidden(workload: Workload, names: Sequence[str]) -> bool:
    """Return whether a setting may be defined outside this manifest, under any of its names.

    The first name takes precedence over the others.
    """
    env = workload.env
    if env.get(names[0], ELSEWHERE) not in ("", ELSEWHERE):
        return False
    if any(env.get(name) == ELSEWHERE or f"{name}_FILE" in env for name in names):
        return True
    elsewhere = workload.env_elsewhere or any(
        env.get(name) for name in ("OUTLAST_ENV_FILE", "OUTLAST_SECRETS_DIR")
    )
    return elsewhere and not any(env.get(name) for name in names)


def _store_of(workload: Workload) -> str | None:
    """Return the store's address: empty if none is named, None if it is not known here."""
    asked = workload.asks or ()
    for place, word in enumerate(asked):
        if word == "--store":
            return asked[place + 1] if place + 1 < len(asked) else ""
        if word.startswith("--store="):
            return word.partition("=")[2]
    loaded = _loaded(workload, *_STORE_NAMES)
    # A store error comes from a file on this machine, not in the container.
    if loaded is None or loaded.store_error is not None or _is_hidden(workload, _STORE_NAMES):
        return None
    return loaded.settings.store if any(workload.env.get(name) for name in _STORE_NAMES) else ""


def settings(facts: Facts) -> Iterator[Finding]:
    found = [one for one in facts.workloads if one.is_ours]
    if not found:
        yield warning(
            "settings",
            "no worker of Outlast is in these files, neither an OUTLAST_ variable nor a command "
            "`outlast`: nothing is judged.",
            "Name the file that has it. If its image calls `outlast`, say so here: command: "
            "[outlast, worker, …].",
        )
    for one in found:
        if one.env_unquoted:
            yield error(
                "settings",
                f"the value of {', '.join(one.env_unquoted[:5])} is no text: Kubernetes refuses "
                "the whole manifest.",
                'Quote it: value: "60".',
                one.where,
            )
        _, wrong = _understood(one)
        for why in wrong.values():
            yield error(
                "settings",
                str(why),
                "Mend the variable. What goes by it is not judged before.",
                one.where,
            )
        if not wrong:
            many = sum(name.startswith(PREFIX) for name in one.env)
            yield ok(
                "settings",
                f"{counted(many, 'setting')} {'is' if many == 1 else 'are'} in order.",
                one.where,
            )


def grace(facts: Facts) -> Iterator[Finding]:
    for one in _mine(facts):
        chosen = settings_of(one, *_GRACE_NAMES)
        if chosen is None or one.period_default is None:
            continue
        if _is_hidden(one, _GRACE_NAMES):
            yield note(
                "grace",
                "OUTLAST_GRACE is not in this file: it may be in a secret, a config map or another "
                "file.",
                f"Compare it with {one.period_name} yourself, or name it here.",
                one.where,
            )
            continue
        if one.period_elsewhere:
            yield note(
                "grace",
                f"what {one.period_name} is cannot be told from this file.",
                f"It must be {chosen.grace + MARGIN_MIN:g} s or more.",
                one.where,
            )
            continue
        period = one.period_default if one.period is None else one.period
        said = f"{one.period_name} is {period:g} s{' unless given' if one.period is None else ''}"
        if one.pre_stop is None:
            yield note(
                "grace",
                "how long the preStop command takes cannot be told.",
                "Give it a time-out: outlast drain --wait --timeout 10.",
                one.where,
            )
        before = one.pre_stop or 0.0
        needs = before + chosen.grace + MARGIN_MIN
        parts = f"grace {chosen.grace:g} s" + (
            f" after a preStop of {before:g} s" if before else ""
        )
        if period < needs:
            yield error(
                "grace",
                f"{said}, and the worker takes up to {parts}: its drain is cut short by SIGKILL.",
                f"Set {one.period_name} to {math.ceil(needs + 3)} or more, or lower OUTLAST_GRACE.",
                one.where,
            )
        else:
            yield ok("grace", f"{said}, enough for {parts}.", one.where)


def lease(facts: Facts) -> Iterator[Finding]:
    for one in _mine(facts):
        chosen = settings_of(one, "OUTLAST_LEASE", "OUTLAST_STALL_MAX", "OUTLAST_POLL")
        if chosen is None:
            continue
        found = [finding._replace(where=one.where) for finding in leases(chosen)]
        yield from found or [
            ok("lease", f"lease {chosen.lease:g} s, stall_max {chosen.stall_max:g} s.", one.where)
        ]


def signals(facts: Facts) -> Iterator[Finding]:
    for one in _mine(facts):
        trouble = False
        front = InFront.NOTHING if one.shell is None else in_front(one.shell, one.shell_name)
        if front is InFront.TRAPS or one.script is not None:
            trouble = True
            what = "a shell with a trap" if one.script is None else f"the script {one.script}"
            yield note(
                "signals",
                f"{what} is in front of the worker: whether SIGTERM gets through cannot be told.",
                "End it with `exec`: the worker then has the place of the shell.",
                one.where,
            )
        if front is InFront.BASH:
            trouble = True
            yield note(
                "signals",
                "bash gets the command: it becomes the worker by itself, if it is 5.1 or newer.",
                "Put `exec` in front: then every shell does.",
                one.where,
            )
        if front is InFront.STAYS and one.shell is not None:
            trouble = True
            is_unit = one.kind == "systemd"
            first = "what systemd has started" if is_unit else "PID 1"
            fix = 'Use the exec form, ["outlast", "worker", …], or put `exec` in front.'
            yield error(
                "signals",
                f"the command is given to a shell ({one.shell[:60]!r}): the shell is {first}, gets "
                "SIGTERM, and does not pass it on.",
                "Name the worker in ExecStart without a shell, or put `exec` in front of it."
                if is_unit
                else fix,
                one.where,
            )
        if one.stop_signal is not None and one.stop_signal.upper().removeprefix("SIG") not in (
            "TERM",
            "15",
            "INT",
            "2",
        ):
            trouble = True
            yield error(
                "signals",
                f"it is stopped by {one.stop_signal}, which begins no drain.",
                "Use SIGTERM.",
                one.where,
            )
        if one.kill_mode in ("control-group", "process", "none"):
            trouble = True
            why = {
                "control-group": "what steps have started gets SIGTERM together with the worker, "
                "and fails before it can end",
                "process": "what steps have started is left behind when the worker is gone",
                "none": "nothing is stopped at all",
            }[one.kill_mode]
            yield warning(
                "signals", f"KillMode={one.kill_mode}: {why}.", "Set KillMode=mixed.", one.where
            )
        if not trouble and (one.command or one.kind in ("compose", "systemd", "Dockerfile")):
            yield ok("signals", "SIGTERM goes to the worker itself.", one.where)


def _share(text: str | None, replicas: int, *, up: bool) -> int:
    """Return a number, or a percentage of the replicas, rounded as Kubernetes does."""
    if text is None:
        return 0
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdigit()):
        return 0
    if not text.endswith("%"):
        return int(number)
    part = replicas * int(number) / 100
    return math.ceil(part) if up else math.floor(part)


def rollout(facts: Facts) -> Iterator[Finding]:
    for one in _mine(facts):
        chosen = settings_of(one, *_GRACE_NAMES)
        if one.kind not in ("Deployment", "StatefulSet") or chosen is None:
            continue
        replicas = one.replicas or 1
        surge, unavailable = (
            _share(one.surge, replicas, up=True),
            _share(one.unavailable, replicas, up=False),
        )
        # Pods are replaced one by one, each in the place of the old one.
        if one.kind == "StatefulSet":
            surge = unavailable = 0
        # A file has one owner: the old pod must be gone before the new one starts.
        if (one.recreate or unavailable > surge) and not (_store_of(one) or "").startswith(
            ("sqlite:", "file:")
        ):
            how = (
                "Recreate"
                if one.recreate
                else f"maxUnavailable {one.unavailable} above maxSurge {one.surge}"
            )
            yield warning(
                "rollout",
                f"a roll-out removes more workers than it adds ({how}): what they leave waits for "
                "room.",
                "Set maxSurge: 1 and maxUnavailable: 0.",
                one.where,
            )
        together = replicas if one.recreate else max(1, surge + unavailable)
        seconds = math.ceil(replicas / together) * (
            (one.pre_stop or 0.0) + chosen.grace + START_SECONDS
        )
        budget = facts.rollout_budget or ROLLOUT_SECONDS
        said = (
            f"{counted(replicas, 'pod')}, {together} at a time, each up to "
            f"{(one.pre_stop or 0.0) + chosen.grace:g} s of drain: a roll-out takes up to "
            f"{seconds / 60:.0f} minutes"
        )
        if seconds > budget:
            yield warning(
                "rollout",
                f"{said}, more than {budget / 60:.0f}.",
                "Lower OUTLAST_GRACE, or have fewer pods."
                if one.kind == "StatefulSet"
                else "Raise maxSurge, or lower OUTLAST_GRACE.",
                one.where,
            )
        elif (
            one.progress_deadline is not None
            and one.progress_deadline < START_SECONDS + (one.pre_stop or 0.0) + chosen.grace
        ):
            yield warning(
                "rollout",
                f"progressDeadlineSeconds={one.progress_deadline:g} is shorter than the drain of "
                "one pod: a roll-out is taken to have failed.",
                "Raise it.",
                one.where,
            )
        else:
            yield ok("rollout", f"{said}.", one.where)


def filesystem(facts: Facts) -> Iterator[Finding]:
    for one in _mine(facts):
        address = _store_of(one)
        if one.kind in ("systemd", "Dockerfile") or address is None:
            continue
        if not address:
            yield note(
                "filesystem",
                "no store is named here: unless the program names one, it is sqlite:///outlast.db "
                "in the working folder, and gone with the container.",
                "Set OUTLAST_STORE.",
                one.where,
            )
            continue
        scheme, _, rest = address.partition(":")
        if scheme not in ("sqlite", "file"):
            continue
        if (one.replicas or 1) > 1 and not (scheme == "sqlite" and _is_together(one)):
            yield error(
                "filesystem",
                f"{one.replicas} replicas and a store that is a file: they would not see the same "
                "one.",
                "Use a StatefulSet with one replica, or a Postgres or Redis store.",
                one.where,
            )
        yield _at(one, address, scheme, rest)


def _is_together(one: Workload) -> bool:
    """Return whether its replicas share a machine and its mounts.

    SQLite can serve them all in that case.
    """
    return one.kind == "compose" or (one.pinned and one.kind != "StatefulSet")


def _at(one: Workload, address: str, scheme: str, rest: str) -> Finding:
    if not rest.startswith("////" if scheme == "sqlite" else "///"):
        return warning(
            "filesystem",
            f"the store {address} lies in the working folder of the container: it is gone with it.",
            "Give it an absolute path on a volume: sqlite:////data/outlast.db.",
            one.where,
        )
    path = PurePosixPath("/" + rest.lstrip("/").partition("?")[0])
    over = [(mount, kind) for mount, kind in one.mounts.items() if path.is_relative_to(mount)]
    kind = max(over, key=lambda found: len(found[0]))[1] if over else None
    if kind in (None, "emptyDir", "ephemeral", "tmpfs"):
        lies = {None: "in the container", "tmpfs": "in memory"}.get(kind, f"on an {kind} volume")
        return error(
            "filesystem",
            f"the store {path} lies {lies}: it is gone with the pod, and every run in it.",
            "Mount a volume that stays (a claim) at its folder.",
            one.where,
        )
    if kind == "readonly":
        return error(
            "filesystem",
            f"the store {path} lies on a volume that cannot be written.",
            "Mount one that can.",
            one.where,
        )
    if kind == "nfs":
        return error(
            "filesystem",
            f"the store {path} lies on a network file system (nfs or its like): its locks and "
            "syncs are not what it needs.",
            "Use a disk, or Postgres.",
            one.where,
        )
    return ok("filesystem", f"the store {path} lies on a volume.", one.where)


def redis(facts: Facts) -> Iterator[Finding]:
    """Check each Redis server, unless every worker is known to use another store.

    A Redis that is only a cache may lose its data.
    """
    stores = [_store_of(one) for one in _mine(facts)]
    if stores and not any(
        store is None or store.startswith(("redis", "unix:")) for store in stores
    ):
        return
    for one in facts.workloads:
        repository = one.image.partition("@")[0]
        if repository.rpartition("/")[2].partition(":")[0] not in ("redis", "valkey"):
            continue
        yield _redis(one, elsewhere="bitnami" in repository)


def _redis(one: Workload, *, elsewhere: bool) -> Finding:
    lines = one.shell if one.shell is not None else " ".join(one.command or ())
    words = [word.strip("'\"") for word in lines.lower().split()]
    said = {
        word: words[place + 1] for place, word in enumerate(words[:-1]) if word.startswith("--")
    }
    policy = said.get("--maxmemory-policy", "noeviction")
    if "--appendonly" not in said and (
        elsewhere or one.script or any(word.endswith(".conf") for word in words)
    ):
        return note(
            "redis",
            "whether appendonly is on is said in its configuration, not here.",
            "Look there; or ask the server itself: outlast doctor --store redis://….",
            one.where,
        )
    if said.get("--appendonly") != "yes":
        return error(
            "redis",
            "appendonly is not switched on here: when this server ends, everything since its last "
            "snapshot is lost.",
            "Start it with --appendonly yes.",
            one.where,
        )
    if policy != "noeviction" and not policy.startswith("volatile-"):
        return error(
            "redis",
            f"maxmemory-policy is {policy}: a full server drops runs and journals.",
            "Use noeviction.",
            one.where,
        )
    if not any(kind in ("claim", "volume", "host") for kind in one.mounts.values()):
        return error(
            "redis",
            "what it writes is on no volume: it is gone with the container.",
            "Mount one at /data.",
            one.where,
        )
    return ok("redis", "appendonly is on, on a volume, and nothing is evicted.", one.where)


def http(facts: Facts) -> Iterator[Finding]:
    for one in _mine(facts):
        chosen = settings_of(one, "OUTLAST_HTTP")
        if chosen is None or not chosen.http:
            continue
        address = chosen.http
        if is_for_this_machine(address):
            yield ok("http", f"the HTTP server ({address}) is for this machine only.", one.where)
        elif not one.env.get("OUTLAST_HTTP_SECRET") and "OUTLAST_HTTP_SECRET_FILE" not in one.env:
            yield warning(
                "http",
                f"the HTTP server is open to others ({address}) and has no secret.",
                "Set OUTLAST_HTTP_SECRET from a secret. A sidecar makes everybody loopback, and "
                "lets them end the worker.",
                one.where,
            )
        else:
            yield ok(
                "http",
                f"the HTTP server ({address}) is open to others, and has a secret.",
                one.where,
            )


def probes(facts: Facts) -> Iterator[Finding]:
    for one in _mine(facts):
        unheard = _unheard(one)
        if one.liveness is not None and one.liveness.rstrip("/").endswith("/ready"):
            yield error(
                "probes",
                "the liveness probe asks for /ready, which says 503 in a drain: the kubelet kills "
                "a worker that is being stopped in an orderly way.",
                "Ask for /health.",
                one.where,
            )
        elif unheard:
            yield error(
                "probes",
                unheard,
                "OUTLAST_HTTP=0.0.0.0:PORT, with the port that the probes ask for.",
                one.where,
            )
        elif (
            one.liveness is not None
            and one.liveness_patience is not None
            and one.liveness_patience < 20
        ):
            yield warning(
                "probes",
                f"the liveness probe loses patience after {one.liveness_patience:g} s: a loop that "
                "is busy for so long is killed, with everything under way.",
                "Raise failureThreshold or periodSeconds.",
                one.where,
            )
        elif one.probed:
            yield ok("probes", "no probe ends a drain.", one.where)
        elif one.kind in ("Deployment", "StatefulSet"):
            yield note(
                "probes",
                "there are no probes: a worker that hangs is not restarted.",
                "OUTLAST_HTTP=0.0.0.0:8080, then livenessProbe /health and readinessProbe /ready.",
                one.where,
            )


def _unheard(one: Workload) -> str:
    """Return why the kubelet, which probes from outside the pod, gets no answer. Empty if it may.

    Without OUTLAST_HTTP, the program serves the probes itself.
    """
    chosen = settings_of(one, "OUTLAST_HTTP")
    if chosen is None or not chosen.http or not one.probe_ports:
        return ""
    if is_for_this_machine(chosen.http):
        return (
            f"the HTTP server is for the pod alone ({chosen.http}), and the kubelet asks from "
            "outside: no probe is ever answered."
        )
    port = parse(chosen.http)[1]
    others = [asked for asked in one.probe_ports if asked != port]
    if others and (one.asks or ("",))[0] == "worker":
        return f"the probes ask at port {others[0]}, and the HTTP server is at {port}."
    return ""


def job(facts: Facts) -> Iterator[Finding]:
    for one in _mine(facts):
        if one.kind not in ("Job", "CronJob"):
            continue
        if not one.knows_75:
            yield warning(
                "job",
                "an interrupted run exits with 75, which counts against backoffLimit here.",
                "podFailurePolicy with action Ignore for exit code 75, and restartPolicy: Never "
                "(`outlast explain job`).",
                one.where,
            )
        else:
            yield ok("job", "exit code 75, interrupted, is not counted as a failure.", one.where)
