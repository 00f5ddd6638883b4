"""Read systemd units with their drop-ins."""

from __future__ import annotations

import re
from pathlib import Path

from outlast.errors import SettingsError
from outlast.tools.doctor.manifests.shell import command_of, split
from outlast.tools.doctor.manifests.values import ELSEWHERE, seconds_of
from outlast.tools.doctor.manifests.workload import Workload, period

PERIOD_SECONDS = 90.0
LISTS = {"Environment", "EnvironmentFile", "PassEnvironment", "ExecStart"}
"""Settings that each further line extends and an empty line clears."""


def unit(path: str, *texts: str) -> Workload:
    """Return the workload of a unit and its drop-ins. Raise SettingsError if it is not a service.

    A drop-in on its own (`.conf`) is partial: the rest counts as being elsewhere.
    """
    lines: dict[str, list[str]] = {}
    for text in texts:
        _add(lines, text)
    if not lines:
        raise SettingsError(f"{path} has no [Service]: it is not a service unit.")
    is_partial = path.endswith(".conf")
    last = {key: values[-1] for key, values in lines.items() if values and values[-1]}
    env = dict(_pair(one) for line in lines.get("Environment", ()) for one in split(path, line))
    env |= {name: ELSEWHERE for line in lines.get("PassEnvironment", ()) for name in line.split()}
    stop = last.get("TimeoutStopSec") or last.get("TimeoutSec")
    # 0 means: never
    stop = "infinity" if seconds_of(stop) == 0 else stop
    return Workload(
        kind="systemd",
        name=Path(path).stem,
        file=path,
        command=command_of(split(path, last.get("ExecStart", "").lstrip("@-:+!|")), ()),
        env=env,
        env_elsewhere=bool(lines.get("EnvironmentFile")),
        period=period("TimeoutStopSec", stop, PERIOD_SECONDS, elsewhere=is_partial),
        stop_signal=last.get("KillSignal"),
        kill_mode=last.get("KillMode", None if is_partial else "control-group"),
    )


def _add(lines: dict[str, list[str]], text: str) -> None:
    section = ""
    for line in re.sub(r"\\\n(?:[ \t]*[#;].*\n)*", " ", text).splitlines():
        stripped = line.strip()
        key, mark, value = (part.strip() for part in stripped.partition("="))
        if stripped.startswith("["):
            section = stripped
        elif section != "[Service]" or not mark or stripped.startswith(("#", ";")):
            continue
        elif key in LISTS and not value:
            lines[key] = []
        else:
            lines.setdefault(key, []).append(value)


def _pair(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name, ELSEWHERE if re.search(r"(?<!%)%[iIjJ]", value) else value.replace("%%", "%")
