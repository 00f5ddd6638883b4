"""The two scripts, each joined from files of `lua/`: one writes, one reads. They are called by their SHA.

A script is executed from its first line at every call, and to define a hundred functions takes longer than to record an entry. So each
file is one function, called when something that it defines is first asked for.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

from outlast.store.verbs import DRAINS_MAX, DURATIONS_MAX, TOKENS_MAX

PARTS = (
    "view", "rows", "queues", "record", "submit", "claim", "ends", "requests", "workers", "drains", "sessions", "prune",
)  # fmt: skip

_HEAD = f"""\
local S = {{DRAINS_MAX = {DRAINS_MAX}, DURATIONS_MAX = {DURATIONS_MAX}, TOKENS_MAX = {TOKENS_MAX}}}
local P, call = KEYS[1], redis.call
"""
_LOAD = """\
setmetatable(S, {__index = function(_, name)
    local part = PART_OF[name]
    if part and PARTS[part] then
        local define = PARTS[part]
        PARTS[part] = nil
        define()
        return rawget(S, name)
    end
end})
"""
_DEFINED = re.compile(r"^(?:function )?S\.(\w+)(?: = |\()", re.MULTILINE)


class Script(NamedTuple):
    text: bytes
    sha: str


@cache
def commit_script() -> Script:
    return _script("main")


@cache
def read_script() -> Script:
    return _script("reads")


def _script(main: str) -> Script:
    texts = {name: _file(name) for name in PARTS}
    parts = "".join(f"{name} = function()\n{text}end,\n" for name, text in texts.items())
    owners = {name: part for part, text in texts.items() for name in _DEFINED.findall(text)}
    part_of = ", ".join(f"{name} = '{part}'" for name, part in owners.items())
    joined = (
        f"{_HEAD}local PARTS = {{\n{parts}}}\nlocal PART_OF = {{{part_of}}}\n{_LOAD}{_file(main)}".encode()
    )
    return Script(joined, hashlib.sha1(joined, usedforsecurity=False).hexdigest())


def _file(name: str) -> str:
    return resources.files("outlast.store.redis").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
