"""Translate PostgreSQL's errors into the store's.

An error is definite if the server said ERROR and the connection is still good, or if nothing was
sent. Any other end of a call in flight (a FATAL, a lost connection, a message without a code)
leaves it unknown whether the call was committed.
"""

from __future__ import annotations

import psycopg

from outlast.errors import (
    OutlastError,
    SettingsError,
    StoreBroken,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
)
from outlast.errors.sentences import stopped
from outlast.store.postgres.address import Address
from outlast.store.postgres.connection import Late
from outlast.store.protocol import BadValue, CommitUnknown

SHUT_OUT = "OL001"
TOO_OLD = "OL002"
ISOLATION = "OL004"
DIGITS = "OL005"
LOCKED = "55P03"
AGAIN = ("40001", "40P01")
"""Codes after which nothing was written and an immediate retry may succeed."""

BAD_VALUES = ("22", "23", "54")
"""Error classes for a value that its column, JSON or an index cannot take."""

_ADVICE = {
    "25006": "it is read-only: a standby, or set so. Check default_transaction_read_only, or "
    "name the primary (target_session_attrs=read-write).",
    "42501": "this user may not do that. Grant it USAGE on the schema and the rights on its "
    "tables that it needs; to make or change a schema, let another role run `outlast "
    "migrate --sql`.",
    "53100": "its disk is full. Make room (`outlast prune --older-than 7d` may help), "
    "then try again.",
    "53200": "it is out of memory or locks. Check max_locks_per_transaction.",
    "55P03": "another program keeps a lock for too long. Look for open transactions "
    "(pg_stat_activity).",
    "57014": "the statement was cancelled, or took longer than statement_timeout.",
    "57P01": "it is being shut down.",
    ISOLATION: "use a role whose default_transaction_isolation is `read committed`.",
    DIGITS: "use a role whose extra_float_digits is 1, as it is by default.",
}
_BROKEN = {
    "3F000": "its schema is missing: it was removed while in use.",
    "42P01": "a table of Outlast is missing: it was removed, or the schema is another program's.",
    "42883": "a function of Outlast is missing. Run `outlast migrate`.",
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
"""Messages for a wrong address. libpq gives no code for a connection that fails, so the text must
do. A server that speaks another language gets StoreUnavailable.
"""


def at_opening(error: Exception, address: Address) -> OutlastError:
    """Translate an error raised while opening a store, before anything was acknowledged.

    Return a SettingsError where waiting does not help.
    """
    if isinstance(error, StoreError) or getattr(error, "sqlstate", None):
        return translate(error, address, sent=False, usable=False)
    message = description(error, address)
    if isinstance(error, psycopg.ProgrammingError) or any(one in str(error) for one in _DEFINITE):
        return SettingsError(
            f"{address.place}: {stopped(message)} Check the address: user, password, database "
            "and options."
        )
    return StoreUnavailable(
        f"{address.place}: cannot connect: {stopped(message)} Check the address, and that the "
        "server is running."
    )


def description(error: Exception, address: Address) -> str:
    """Return the server's message in one line.

    It has no values (those are in DETAIL) and no password.
    """
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return address.masked((primary or str(error).partition("\n")[0]).strip())


def translate(error: Exception, address: Address, *, sent: bool, usable: bool) -> StoreError:
    """Translate an error into the store's exception.

    `sent` says that a commit was sent, `usable` that the connection still works.
    """
    if isinstance(error, StoreError):
        return error
    message, code = description(error, address), getattr(error, "sqlstate", None) or ""
    if (
        not sent
        and not code
        and not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError))
    ):
        # psycopg could not build a request from the values.
        return BadValue(message)
    if sent and (not usable or not code or code.startswith("08") or code == "40003"):
        return CommitUnknown(
            f"{address.place}: the connection was lost in the middle of a commit ({message})."
        )
    if code.startswith(BAD_VALUES):
        return BadValue(message)
    if code == TOO_OLD:
        return StoreTooNew(
            f"{address.place}: {stopped(message)} Upgrade this Outlast. Nothing was changed."
        )
    if code in _BROKEN:
        return StoreBroken(f"{address.place}: {_BROKEN[code]} ({message})")
    if isinstance(error, Late):
        return StoreUnavailable(
            f"{address.place}: {stopped(message)} Check the server, its pooler and the network."
        )
    # libpq gives no code for a connection that fails: the server's message must do.
    without_code = "cannot connect. Check that it runs, the address, the user and the password."
    advice = _ADVICE.get(code, "it cannot be used now." if code else without_code)
    return StoreUnavailable(
        f"{address.place}: {advice} Nothing acknowledged is lost; the runs are resumable. "
        f"({message})"
    )
