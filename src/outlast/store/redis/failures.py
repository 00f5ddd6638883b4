"""Translate the errors of a Redis server into the store's.

Errors are recognized by their code: the first word, which is part of the protocol. Any answer from
the server is definite: a call that was refused, or whose script failed, has written nothing. Only a
connection lost during a call leaves its outcome unknown.
"""

from __future__ import annotations

import re

from redis import exceptions

from outlast.errors import SettingsError, StoreBroken, StoreError, StoreUnavailable
from outlast.store.protocol import DamagedRow

_ADVICE = {
    "LOADING": "the server is loading its data. It answers when that is done.",
    "BUSY": "the server is busy with another client's script. `redis-cli SCRIPT KILL` ends one "
    "that does not end by itself.",
    "READONLY": "this is a replica, which accepts no writes. Give the address of the master.",
    "MASTERDOWN": "this is a replica that has lost its master. Give the address of the master.",
    "MISCONF": "the server cannot write to its disk, and accepts no writes until it can. Its own "
    "log says why.",
    "NOREPLICAS": "too few replicas are connected for the server's min-replicas-to-write.",
    "OOM": "the server's memory is full (maxmemory). Give it more, or make room: `outlast prune "
    "--older-than 7d`.",
    "CLUSTERDOWN": "the cluster is down.",
    "TRYAGAIN": "the cluster moves the slot of these keys. It answers when that is done.",
    "MOVED": "this node of a cluster does not have the slot of these keys. Give the address of "
    "the one that does.",
    "ASK": "the cluster moves the slot of these keys. It answers when that is done.",
    "NOAUTH": "the server wants a password: redis://:PASSWORD@host.",
    "WRONGPASS": "the server rejected this user name and password.",
    "NOPERM": "the user of this address may not do this. `outlast explain redis` says which "
    "rights Outlast needs.",
    "UNKILLABLE": "the server is busy with another client's script that has written already.",
}
_CLASSES = {
    exceptions.BusyLoadingError: "LOADING",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.AuthenticationError: "WRONGPASS",
    exceptions.AuthenticationWrongNumberOfArgsError: "WRONGPASS",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.MovedError: "MOVED",
    exceptions.AskError: "ASK",
}
"""The codes of redis-py's error classes. redis-py strips the code from errors with a class of their
own.
"""

_RESUMABLE = "Nothing acknowledged is lost; the runs are resumable."
_IN_SCRIPT = re.compile(rf"-?\b({'|'.join(_ADVICE)})\b")
_DAMAGED = re.compile(r"\b(?:run|worker) .*: \w+ is not a number")
"""How the scripts name a damaged row."""


_DEFINITE = {"NOAUTH", "WRONGPASS", "NOPERM", "DB"}
"""Codes that waiting does not help with when connecting: user, password, rights, or the database
number ("DB index is out of range").
"""


def wrong_address(error: StoreError) -> SettingsError | None:
    """Return a SettingsError if a store could not be opened because of its address.

    Return None if waiting may help.
    """
    cause = error.__cause__
    if isinstance(cause, exceptions.RedisError) and _code(cause) in _DEFINITE:
        return SettingsError(str(error).replace(f" {_RESUMABLE}", ""))
    return None


def refused(error: exceptions.RedisError, place: str) -> StoreError:
    """Translate the server's answer, or the reason why it cannot be reached, into the store's
    exception.
    """
    code = _code(error)
    if code in _ADVICE:
        return StoreUnavailable(f"{place}: {_ADVICE[code]} {_RESUMABLE} ({error})")
    if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError)):
        return away(error, place)
    return StoreBroken(f"{place}: the server rejected a command of Outlast: {error}")


def away(error: Exception, place: str) -> StoreUnavailable:
    """Return the error for a server that does not answer.

    It promises nothing about acknowledged data: the server's settings decide what it keeps.
    """
    return StoreUnavailable(
        f"{place}: the server cannot be reached. Check the address, and that the server is "
        f"running. ({error})"
    )


def fault(text: str, place: str, *, torn: bool) -> StoreError:
    """Return the error for a script that failed.

    The script has reverted what it wrote, unless it is `torn`.
    """
    code = _IN_SCRIPT.search(text)
    if torn:
        return StoreBroken(
            f"{place}: a change failed, and could not be rolled back completely: {text}"
        )
    if code is not None:
        return StoreUnavailable(
            f"{place}: {_ADVICE[code[1]]} Nothing was written. ({text.strip()})"
        )
    kind = DamagedRow if _DAMAGED.search(text) else StoreBroken
    return kind(
        f"{place}: its data is not as Outlast left it, or this is a bug in Outlast. Nothing "
        f"was written. ({text})"
    )


def _code(error: exceptions.RedisError) -> str:
    for kind, code in _CLASSES.items():
        if type(error) is kind:
            return code
    return str(error).partition(" ")[0]
