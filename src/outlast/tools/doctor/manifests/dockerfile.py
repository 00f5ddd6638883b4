"""Read Dockerfiles: what the last stage starts, with the settings it inherits from other stages."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping

from outlast.tools.doctor.manifests.shell import command_of, shell_command
from outlast.tools.doctor.manifests.values import value_of
from outlast.tools.doctor.manifests.workload import Workload, has_ours

Words = tuple[str, ...]


def dockerfile(path: str, text: str) -> Workload:
    entry: Words | str = ()
    command: Words | str = ()
    env: dict[str, str] = {}
    args: dict[str, str] = {}
    stop = None
    for instruction, rest in _instructions(text):
        match instruction:
            case "FROM":
                args = {}
            case "ENTRYPOINT":
                entry, command = _form(rest), ()
            case "CMD":
                command = _form(rest)
            case "STOPSIGNAL":
                stop = rest
            case "ARG":
                args |= _pairs(rest, {**args, **env})
            case "ENV":
                env |= _pairs(rest, {**args, **env})
    if isinstance(entry, str):
        started = shell_command(entry)
    elif isinstance(command, str):
        started = shell_command(command)
    else:
        started = command_of(entry, command, ours=has_ours(env))
    return Workload("Dockerfile", "", path, started, env=env, stop_signal=stop)


def _instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of the last stage, after those of the stages it is built from."""
    stages: dict[str, list[tuple[str, str]]] = {}
    found: list[tuple[str, str]] = []
    for line in re.sub(r"\\[ \t]*\n(?:\s*#.*\n)*", " ", text).splitlines():
        instruction, *rest = line.split(None, 1) or [""]
        if instruction.upper() == "FROM":
            words = [word for word in line.lower().split()[1:] if not word.startswith("--")]
            found = [*stages.get("".join(words[:1]), ())]
            if len(words) == 3 and words[1] == "as":
                stages[words[2]] = found
        found.append((instruction.upper(), "".join(rest).strip()))
    return found


def _form(rest: str) -> Words | str:
    """Parse the exec form, a JSON list. Anything else goes to a shell."""
    try:
        found = json.loads(rest)
    except ValueError:
        return rest
    return tuple(map(str, found)) if isinstance(found, list) else rest


def _pairs(rest: str, known: Mapping[str, str]) -> dict[str, str]:
    try:
        parts = shlex.split(rest)
    # In the old form a quotation mark is an ordinary character: ENV NAME it's
    except ValueError:
        parts = rest.split()
    if len(parts) > 1 and "=" not in parts[0]:
        return {parts[0]: value_of(" ".join(parts[1:]), known)}
    pairs = (part.partition("=") for part in parts)
    return {name: value_of(value, known) for name, mark, value in pairs if mark}
