"""What Postgres's errors mean.

An error is definite where the server said ERROR and the connection is still good, or where nothing was sent. Any other end of a call
under way (a FATAL, a lost connection, words without a code) leaves it unknown whether it was committed.
"""

from __future__ import annotations

import psycopg

from outlast.codec.sentences import stopped
from outlast.errors import (
    OutlastError,
    SettingsError,
    StoreBroken,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
)
from outlast.store.postgres.address import Address
from outlast.store.postgres.connection import Late
from outlast.store.protocol import BadValue, CommitUnknown

SHUT_OUT = "OL001"
TOO_OLD = "OL002"
ISOLATION = "OL004"
DIGITS = "OL005"
LOCKED = "55P03"
AGAIN = ("40001", "40P01")
"""Nothing was written, and the same again may succeed at once."""

BAD_VALUES = ("22", "23", "54")
"""Classes: a value that its column, JSON or an index cannot take."""

_ADVICE = {
    "25006": "it is read-only: a standby, or set so. Check default_transaction_read_only, or name the primary (target_session_attrs=read-write).",
    "42501": "this user may not do that. Grant it USAGE on the schema and the rights on its tables that it needs; to make or change a schema, let another role run `outlast migrate --sql`.",
    "53100": "its disk is full. Make room (`outlast prune --older-than 7d` may help), then go on.",
    "53200": "it is out of memory or locks. Check max_locks_per_transaction.",
    "55P03": "somebody keeps a lock for too long. Look for open transactions (pg_stat_activity).",
    "57014": "the statement was cancelled, or took longer than statement_timeout.",
    "57P01": "it is being shut down.",
    ISOLATION: "use a role whose default_transaction_isolation is `read committed`.",
    DIGITS: "use a role whose extra_float_digits is 1, as it is by default.",
}
_BROKEN = {
    "3F000": "its schema is not there: somebody removed it while in use.",
    "42P01": "a table of Outlast is not there: somebody removed it, or the schema is another program's.",
    "42883": "a function of Outlast is not there. Run `outlast migrate`.",
    "XX001": "it is damaged (data_corrupted). Restore a backup.",
    "XX002": "it is damaged (index_corrupted). REINDEX, or restore a backup.",
}


_DEFINITE = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "no password supplied",
    "is not permitted to log in",
    "permission denied for database",
    "invalid sslmode",
)
"""What is wrong with an address. libpq gives no code with a connection that fails, so the words must do; in another language it is StoreUnavailable."""


def at_opening(error: Exception, address: Address) -> OutlastError:
    """The same for a store that is being opened, of which nothing was acknowledged yet: what no waiting mends is a SettingsError."""
    if isinstance(error, StoreError) or getattr(error, "sqlstate", None):
        return translate(error, address, sent=False, usable=False)
    said = words(error, address)
    if isinstance(error, psycopg.ProgrammingError) or any(one in str(error) for one in _DEFINITE):
        return SettingsError(
            f"{address.place}: {stopped(said)} Check the address: user, password, database and options."
        )
    return StoreUnavailable(
        f"{address.place}: it cannot be connected to: {stopped(said)} Check that it runs, and the address."
    )


def words(error: Exception, address: Address) -> str:
    """What the server said, in one line: no values (they are in DETAIL), no password."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return address.masked((primary or str(error).partition("\n")[0]).strip())


def translate(error: Exception, address: Address, *, sent: bool, usable: bool) -> StoreError:
    """The store's word for an error. `sent`: a commit had been sent; `usable`: the connection still is."""
    if isinstance(error, StoreError):
        return error
    said, code = words(error, address), getattr(error, "sqlstate", None) or ""
    if (
        not sent
        and not code
        and not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError))
    ):
        return BadValue(said)  # psycopg could not make a request of it
    if sent and (not usable or not code or code.startswith("08") or code == "40003"):
        return CommitUnknown(
            f"{address.place}: the connection was lost in the middle of a commit ({said})."
        )
    if code.startswith(BAD_VALUES):
        return BadValue(said)
    if code == TOO_OLD:
        return StoreTooNew(
            f"{address.place}: {stopped(said)} Upgrade this Outlast. Nothing was changed."
        )
    if code in _BROKEN:
        return StoreBroken(f"{address.place}: {_BROKEN[code]} ({said})")
    if isinstance(error, Late):
        return StoreUnavailable(
            f"{address.place}: {stopped(said)} Check the server, its pooler and the network."
        )
    # libpq gives no code with a connection that fails: the server's own words must do.
    without_code = (
        "it cannot be connected to. Check that it runs, the address, the user and the password."
    )
    advice = _ADVICE.get(code, "it cannot be used now." if code else without_code)
    return StoreUnavailable(
        f"{address.place}: {advice} Nothing acknowledged is lost; the runs are resumable. ({said})"
    )
