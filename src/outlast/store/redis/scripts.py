"""Build the scripts from the files in `lua/`. They are called by their SHA.

One script writes, one only records (most of the work), and one reads.

The server executes a script from its first line at every call, and defining a hundred functions
takes longer than recording an entry. So each file is one function, called when one of its
definitions is first used.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

from outlast.store.commands import DRAINS_MAX, DURATIONS_MAX, FOLD_MAX, TOKENS_MAX
from outlast.store.rows import (
    ATTEMPTS_FACTOR_MAX,
    FLEET_DEATHS_MAX,
    FLEET_SECONDS,
    FLEET_SECONDS_MIN,
    SUSPECT_DEATHS,
    TURN_STEP,
)

PARTS = (
    "core",
    "rollback",
    "record_fast_path",
    "run_updates",
    "hashes",
    "sorted_sets",
    "lists",
    "run_indexes",
    "rows",
    "queues",
    "keys",
    "counters",
    "settle_fast_path",
    "journal",
    "submit",
    "claim",
    "release",
    "requests",
    "workers",
    "deaths",
    "drains",
    "sessions",
    "streams",
    "prune",
)

_HEAD = f"""\
local S = {{
    DRAINS_MAX = {DRAINS_MAX}, DURATIONS_MAX = {DURATIONS_MAX}, TOKENS_MAX = {TOKENS_MAX},
    SUSPECT_DEATHS = {SUSPECT_DEATHS}, FOLD_MAX = {FOLD_MAX},
    ATTEMPTS_FACTOR_MAX = {ATTEMPTS_FACTOR_MAX}, FLEET_DEATHS_MAX = {FLEET_DEATHS_MAX},
    FLEET_SECONDS = {FLEET_SECONDS}, FLEET_SECONDS_MIN = {FLEET_SECONDS_MIN},
    TURN_STEP = {TURN_STEP},
}}
local P, call = KEYS[1], redis.call
"""
RECORDING = ("core", "rollback", "record_fast_path")
_LOAD = """\
setmetatable(S, {__index = function(_, name)
    local _, at = INDEX:find(' ' .. name .. '=', 1, true)
    local part = at and INDEX:match('^[%a_]+', at + 1)
    if part and PARTS[part] then
        local define = PARTS[part]
        PARTS[part] = nil
        define()
        return rawget(S, name)
    end
end})
"""
"""The index of definitions is one text, because a table would be built again at every call."""
_DEFINED = re.compile(r"^(?:function )?S\.(\w+)(?: = |\()", re.MULTILINE)


class Script(NamedTuple):
    text: bytes
    sha: str


@cache
def commit_script(extra: str = "") -> Script:
    """Return the script for any batch. `extra` is Lua that defines more operations."""
    return _script("commit", extra=extra)


@cache
def record_script() -> Script:
    """Return the script for a batch that has only Records."""
    return _script("commit", RECORDING)


@cache
def read_script() -> Script:
    return _script("reads", (*PARTS, "session_reads"))


def _script(main: str, parts_of_it: tuple[str, ...] = PARTS, extra: str = "") -> Script:
    texts = {name: _file(name) for name in parts_of_it}
    parts = "".join(f"{name} = function()\n{text}end,\n" for name, text in texts.items())
    owners = {name: part for part, text in texts.items() for name in _DEFINED.findall(text)}
    index = " ".join(f"{name}={part}" for name, part in owners.items())
    joined = (
        f"{_HEAD}local PARTS = {{\n{parts}}}\nlocal INDEX = ' {index} '\n"
        f"{_LOAD}{extra}{_file(main)}"
    ).encode()
    return Script(joined, hashlib.sha1(joined, usedforsecurity=False).hexdigest())


def _file(name: str) -> str:
    return (
        resources.files("outlast.store.redis")
        .joinpath("lua", f"{name}.lua")
        .read_text(encoding="utf-8")
    )
