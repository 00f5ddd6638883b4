"""Apply checks to the workers in manifests, and read their settings as far as they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from outlast.errors import SettingsError
from outlast.settings import Settings
from outlast.settings.load import Loaded, load
from outlast.settings.third_party_env import GRACE, STORES
from outlast.settings.variables import NO_FILES, PREFIX
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding
from outlast.tools.doctor.workload import ELSEWHERE, Workload

STORE_NAMES = ("OUTLAST_STORE", *STORES)
GRACE_NAMES = ("OUTLAST_GRACE", GRACE)


def for_each_worker(
    check: Callable[[Workload], Iterator[Finding]],
) -> Callable[[Facts], Iterator[Finding]]:
    """Return a check of the facts that applies this one to each worker, and says where it is."""

    def checked(facts: Facts) -> Iterator[Finding]:
        for one in facts.workloads:
            if one.is_worker:
                yield from (finding._replace(where=one.where) for finding in check(one))

    return checked


def understood(workload: Workload) -> tuple[dict[str, str], dict[str, SettingsError]]:
    """Return the manifest's valid variables, and the error of each invalid one."""
    env = {
        name: value
        for name, value in workload.env.items()
        if value != ELSEWHERE and not name.endswith("_FILE")
    }
    if _error_of(env) is None:
        return env, {}
    ours = [name for name in env if name.upper().startswith(PREFIX) or name == GRACE]
    left = {name: env.pop(name) for name in ours}
    # One variable may need another, as a reserve needs the grace that it is a part of.
    while True:
        fits = next((name for name in left if _error_of({**env, name: left[name]}) is None), None)
        if fits is None:
            break
        env[fits] = left.pop(fits)
    tried = {name: _error_of({**env, name: value}) for name, value in left.items()}
    return env, {name: error for name, error in tried.items() if error is not None}


def settings_of(workload: Workload, *needed: str) -> Settings | None:
    """Return the settings, or None if one of the needed variables is invalid.

    The check `settings` reports invalid variables.
    """
    loaded = _loaded(workload, *needed)
    return None if loaded is None else loaded.settings


def is_hidden(workload: Workload, names: Sequence[str]) -> bool:
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


def store_of(workload: Workload) -> str | None:
    """Return the store's address: empty if none is named, None if it is not known here."""
    arguments = workload.asks or ()
    for place, word in enumerate(arguments):
        if word == "--store":
            return arguments[place + 1] if place + 1 < len(arguments) else ""
        if word.startswith("--store="):
            return word.partition("=")[2]
    loaded = _loaded(workload, *STORE_NAMES)
    # A store error comes from a file on this machine, not in the container.
    if loaded is None or loaded.store_error is not None or is_hidden(workload, STORE_NAMES):
        return None
    return loaded.settings.store if any(workload.env.get(name) for name in STORE_NAMES) else ""


def _loaded(workload: Workload, *needed: str) -> Loaded | None:
    env, wrong = understood(workload)
    return None if set(needed) & set(wrong) else load({}, {**env, **NO_FILES})


def _error_of(env: Mapping[str, str]) -> SettingsError | None:
    """Return why these variables are not valid settings. None if they are."""
    try:
        load({}, {**env, **NO_FILES})
    except SettingsError as error:
        return error
    return None
