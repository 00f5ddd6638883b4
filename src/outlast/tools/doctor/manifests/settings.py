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
from outlast.tools.doctor.manifests.values import ELSEWHERE
from outlast.tools.doctor.manifests.workload import Workload

STORE_NAMES = ("OUTLAST_STORE", *STORES)
GRACE_NAMES = ("OUTLAST_GRACE", GRACE)

WorkerCheck = Callable[[Workload, Settings], Iterator[Finding]]


def for_each_worker(*needed: str) -> Callable[[WorkerCheck], Callable[[Facts], Iterator[Finding]]]:
    """Make a check of the facts from a check of one worker and its settings.

    A worker is skipped if a needed variable is invalid. The check `settings` reports those.
    """

    def decorate(check: WorkerCheck) -> Callable[[Facts], Iterator[Finding]]:
        def checked(facts: Facts) -> Iterator[Finding]:
            for one in facts.workloads:
                if one.is_worker and (loaded := _loaded(one, *needed)) is not None:
                    for finding in check(one, loaded.settings):
                        yield finding._replace(where=one.where)

        return checked

    return decorate


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
    while fits := [name for name in left if _error_of({**env, name: left[name]}) is None]:
        env[fits[0]] = left.pop(fits[0])
    return env, {name: error for name in left if (error := _error_of({**env, name: left[name]}))}


def is_hidden(workload: Workload, names: Sequence[str]) -> bool:
    """Return whether a setting may be defined outside this manifest, under any of its names.

    The first name takes precedence over the others.
    """
    env = workload.env
    if env.get(names[0], ELSEWHERE) not in ("", ELSEWHERE):
        return False
    if any(env.get(name) == ELSEWHERE or f"{name}_FILE" in env for name in names):
        return True
    files = env.get("OUTLAST_ENV_FILE") or env.get("OUTLAST_SECRETS_DIR")
    return bool(files or workload.env_elsewhere) and not any(env.get(name) for name in names)


def store_of(workload: Workload) -> str | None:
    """Return the store's address: empty if none is named, None if it is not known here."""
    arguments = workload.command.arguments or ()
    for place, word in enumerate(arguments):
        option, mark, value = word.partition("=")
        if option == "--store":
            return value if mark else "".join(arguments[place + 1 : place + 2])
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
