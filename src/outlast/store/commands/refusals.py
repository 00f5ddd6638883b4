"""Define why a store refuses a command."""

from __future__ import annotations

from typing import NamedTuple

FENCE = "fence"
UNKNOWN = "unknown"
STATUS = "status"
VERSION = "version"
WORKER = "worker"
DEPTH = "depth"
CONFLICT = "conflict"
DRAINING = "draining"
PARENT = "parent"
CANCEL = "cancel"
PRESENT = "present"
OWNER = "owner"
INDEX = "index"
LIMIT = "limit"
OFFSET = "offset"


class Refused(NamedTuple):
    """A command that was not applied. `why` is one of the constants of this module."""

    why: str
    detail: str = ""
