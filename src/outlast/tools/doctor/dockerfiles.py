"""Read Dockerfiles: what the last stage starts, with the settings it inherits from other stages."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from outlast.tools.doctor.commands import called, outlast_words
from outlast.tools.doctor.variables import value_of
from outlast.tools.doctor.workload import Workload, has_ours

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Stage:
    entry: Words | str | None = None
    command: Words | str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, str] = field(default_factory=dict)
    stop: str | None = None


def dockerfile(path: str, text: str) -> Workload:
    stages: dict[str, _Stage] = {}
    stage = _Stage()
    name = ""
    for line in re.sub(r"\\[ \t]*\n(?:\s*#.*\n)*", " ", text).splitlines():
        word, _, rest = line.strip().replace("\t", " ").partition(" ")
        word = word.upper()
        rest = rest.strip()
        if word == "FROM":
            stages[name] = stage
            of, name = _from(rest)
            stage = replace(stages.get(of, _Stage()), args={})
        else:
            stage = _after(stage, word, rest)
    return Workload(
        kind="Dockerfile",
        name="",
        file=path,
        env=stage.env,
        stop_signal=stage.stop,
        **_started(stage),
    )


def _from(rest: str) -> tuple[str, str]:
    """Return the base image or stage, and the name of this stage."""
    words = [word for word in rest.split() if not word.startswith("--")]
    named = len(words) == 3 and words[1].upper() == "AS"
    return (words[0].lower() if words else ""), (words[2].lower() if named else "")


def _after(stage: _Stage, word: str, rest: str) -> _Stage:
    known = {**stage.args, **stage.env}
    if word == "ENTRYPOINT":
        return replace(stage, entry=_form(rest), command=None)
    if word == "CMD":
        return replace(stage, command=_form(rest))
    if word == "STOPSIGNAL":
        return replace(stage, stop=rest)
    if word == "ARG":
        return replace(
            stage,
            args={**stage.args, **{key: value_of(value, known) for key, value in _pairs(rest)}},
        )
    if word == "ENV":
        return replace(
            stage, env={**stage.env, **{key: value_of(value, known) for key, value in _pairs(rest)}}
        )
    return stage


def _started(stage: _Stage) -> dict[str, Any]:
    shell = next((one for one in (stage.entry, stage.command) if isinstance(one, str)), None)
    if shell is not None:
        return {"command": None, "shell": shell, "asks": outlast_words(None, shell)}
    return called(tuple(stage.entry or ()), tuple(stage.command or ()), ours=has_ours(stage.env))


def _form(rest: str) -> Words | str:
    """Parse the exec form, a JSON list. Anything else goes to a shell."""
    try:
        found = json.loads(rest)
    except ValueError:
        return rest
    return tuple(map(str, found)) if isinstance(found, list) else rest


def _pairs(rest: str) -> list[tuple[str, str]]:
    try:
        parts = shlex.split(rest)
    # In the old form a quotation mark is an ordinary character: ENV NAME it's
    except ValueError:
        parts = rest.split()
    if parts and "=" not in parts[0]:
        return [(parts[0], " ".join(parts[1:]))] if len(parts) > 1 else []
    return [(key, value) for key, mark, value in (part.partition("=") for part in parts) if mark]
