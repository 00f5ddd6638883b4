"""Read systemd units with their drop-ins."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

from outlast.errors import SettingsError
from outlast.tools.doctor.commands import called
from outlast.tools.doctor.workload import ELSEWHERE, Workload, seconds_of

PERIOD_SECONDS = 90.0
LISTS = {"Environment", "EnvironmentFile", "PassEnvironment", "ExecStart"}
"""Settings that each further line extends and an empty line clears."""


def unit(path: str, text: str, drop_ins: list[str]) -> Workload:
    """Return the workload of a unit. Raise SettingsError if it is not a service.

    A drop-in on its own (`.conf`) is partial: the rest counts as being elsewhere.
    """
    said: dict[str, list[str]] = {}
    for one in (text, *drop_ins):
        _add(said, one)
    if not said:
        raise SettingsError(f"{path} has no [Service]: it is not a service unit.")
    partial = path.endswith(".conf")
    env = dict(_pair(part) for value in said.get("Environment", ()) for part in split(path, value))
    env |= {name: ELSEWHERE for value in said.get("PassEnvironment", ()) for name in value.split()}
    start = _last(said, "ExecStart") or ""
    period = _last(said, "TimeoutStopSec") or _last(said, "TimeoutSec")
    seconds = seconds_of(period)
    return Workload(
        kind="systemd",
        name=Path(path).stem,
        file=path,
        **called(tuple(split(path, start.lstrip("@-:+!|"))), (), ours=True),
        env=env,
        # 0 means: never
        env_elsewhere=bool(said.get("EnvironmentFile")),
        period=math.inf if seconds == 0 else seconds,
        period_default=PERIOD_SECONDS,
        period_elsewhere=seconds is None and (partial or period is not None),
        period_name="TimeoutStopSec",
        stop_signal=_last(said, "KillSignal"),
        kill_mode=_last(said, "KillMode") or (None if partial else "control-group"),
        restart=_last(said, "Restart") or "no",
    )


def split(path: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"{path}: {text[:80]!r} cannot be read ({error}).") from None


def _add(said: dict[str, list[str]], text: str) -> None:
    section = ""
    for line in re.sub(r"\\\n(?:[ \t]*[#;].*\n)*", " ", text).splitlines():
        stripped = line.strip()
        key, mark, value = (part.strip() for part in stripped.partition("="))
        if stripped.startswith("["):
            section = stripped
        elif section != "[Service]" or not mark or stripped.startswith(("#", ";")):
            continue
        elif key in LISTS and not value:
            said[key] = []
        else:
            said.setdefault(key, []).append(value)


def _last(said: dict[str, list[str]], key: str) -> str | None:
    return next(iter(said.get(key, ())[-1:]), None) or None


def _pair(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name, ELSEWHERE if re.search(r"(?<!%)%[iIjJ]", value) else value.replace("%%", "%")
