# ruff: noqa: S608 - only our own names and the quoted schema name are interpolated
"""Check the version of the schema, and bring it to the one that this release knows.

A migration is a numbered file. It is executed once, in its own transaction under a lock: of two
processes that migrate, the second finds it done. A migration must not disturb workers of the
previous release, so it adds columns and tables and removes none. The functions are installed with
it, under names that end in the version. Workers of an older release still call theirs.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING

from psycopg import errors

from outlast.errors import StoreTooNew, StoreUnavailable
from outlast.store.commands import DRAINS_MAX, DURATIONS_MAX, TOKENS_MAX
from outlast.store.postgres import schema_owner
from outlast.store.postgres.statements import PLANS
from outlast.store.rows import (
    ATTEMPTS_FACTOR_MAX,
    FLEET_DEATHS_MAX,
    FLEET_SECONDS,
    FLEET_SECONDS_MIN,
    SUSPECT_DEATHS,
    TURN_STEP,
    RunRow,
)

if TYPE_CHECKING:
    from outlast.store.postgres.connection import Connection

LOCK_SECONDS_MAX = 2
TRIES_MAX = 10
WALK_MAX = 1_000
"""Index entries. When a scan for claimable runs walks over more, the store remembers the first run
of each line: see the function `ready`.
"""
ANSWER_MAX = 60_000
"""Bytes in an answer. Runs beyond it are sent as numbers, and read later: see the function `row`.
"""
GRACE_SECONDS = 0.6
"""The minimum silence after which a worker without a lock counts as dead."""

_SCHEMA = """
-- one who owns the schema need not have the right to make another
DO $do$ BEGIN
    IF to_regnamespace('{schema}') IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END $do$;
"""
_META = """
CREATE TABLE IF NOT EXISTS {schema}.meta (
    version   integer NOT NULL,
    -- whose functions may still be called
    oldest    integer NOT NULL,
    functions text    NOT NULL,                                -- a fingerprint
    -- of the server, see `fences_from`; NULL: it does not tell
    timeline  text,
    fences_from bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.meta (version, oldest, functions) SELECT 0, 0, ''
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.meta);
"""
_TIMELINE = """
DO $do$ BEGIN
    UPDATE {schema}.meta SET timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
        WHERE timeline IS NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'the timeline of the server is not known: %', SQLERRM;
END $do$;
"""
_DROP = """
-- those of a version that is not released yet may differ in their signatures
DO $do$ DECLARE f regprocedure; BEGIN
    FOR f IN SELECT oid FROM pg_proc
        WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
            AND proname LIKE '%\\_{version}'
                AND (SELECT functions FROM meta) NOT IN ('', '{fingerprint}')
    LOOP EXECUTE 'DROP FUNCTION ' || f; END LOOP;
END $do$;
"""


@cache
def _files(folder: str) -> tuple[str, ...]:
    files = resources.files(f"outlast.store.postgres.{folder}")
    return tuple(
        file.read_text()
        for file in sorted(files.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".sql")
    )


def version() -> int:
    """Return the schema version that this release knows."""
    return len(_files("migrations"))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@cache
def functions(schema: str) -> str:
    """Return the statements that create the functions, for this schema and version."""
    text = "\n".join(_files("functions")).replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
    settings = " ".join(
        f"SET {each}" for each in (f"search_path = {quoted(schema)}, pg_temp", *PLANS)
    )
    words = {
        "SETTINGS": settings,
        "COLUMNS": ", ".join(f"r.{name}" for name in RunRow._fields),
        "SCHEMA": schema,
        "DRAINS_MAX": str(DRAINS_MAX),
        "DURATIONS_MAX": str(DURATIONS_MAX),
        "TOKENS_MAX": str(TOKENS_MAX),
        "WALK_MAX": str(WALK_MAX),
        "ANSWER_MAX": str(ANSWER_MAX),
        "SUSPECT_DEATHS": str(SUSPECT_DEATHS),
        "FLEET_DEATHS_MAX": str(FLEET_DEATHS_MAX),
        "FLEET_SECONDS": str(FLEET_SECONDS),
        "FLEET_SECONDS_MIN": str(FLEET_SECONDS_MIN),
        "ATTEMPTS_FACTOR_MAX": str(ATTEMPTS_FACTOR_MAX),
        "GRACE": str(GRACE_SECONDS),
        "TURN_STEP": f"{TURN_STEP:f}",
    }
    return re.sub(
        r"\b([A-Za-z_]+)__v\b", lambda found: words.get(found[1], f"{found[1]}_{version()}"), text
    )


@cache
def fingerprint(schema: str) -> str:
    return sha256(functions(schema).encode()).hexdigest()[:16]


def steps(schema: str, owner: str | None = None) -> list[str]:
    """Return statements that bring a schema of any version to this one, in order.

    Each needs its own transaction, and does nothing if it was done before. Each fails before it
    touches anything in a schema of a role that is neither trusted nor `owner`.
    """
    name = quoted(schema)
    key = f"hashtextextended('outlast/' || {schema_owner.literal(schema)}, 6074000)"
    head = (
        "SET LOCAL search_path = pg_catalog, pg_temp;\nSET LOCAL lock_timeout = "
        f"'{LOCK_SECONDS_MAX}s';\n"
        f"SELECT pg_advisory_xact_lock({key});\n"
    )
    trusted = schema_owner.assertion(schema, owner)
    path = f"{trusted}SET LOCAL search_path = {name}, pg_temp;\n"
    made = _SCHEMA.format(schema=name)
    found = [head + made + trusted + _META.format(schema=name) + _TIMELINE.format(schema=name)]
    for number, text in enumerate(_files("migrations"), 1):
        found.append(
            f"{head}{path}DO $migration$ BEGIN IF (SELECT version FROM meta) = {number - 1} "
            f"THEN\nEXECUTE $step$\n{text}\n$step$;\n"
            f"UPDATE meta SET version = {number}, oldest = greatest(oldest, 1);\nEND IF; END "
            "$migration$;\n"
        )
    fresh = _DROP.format(version=version(), fingerprint=fingerprint(schema))
    done = (
        f"UPDATE meta SET functions = {schema_owner.literal(fingerprint(schema))} WHERE "
        "version = "
        f"{version()};\n"
    )
    found.append(
        f"{head}{path}SET LOCAL check_function_bodies = off;\n{fresh}{functions(schema)}\n{done}"
    )
    return found


def script(schema: str, owner: str | None = None) -> str:
    """Return the statements of `steps` as a script for psql."""
    body = "\n".join(f"BEGIN;\n{step}COMMIT;\n" for step in steps(schema, owner))
    return (
        f"-- The schema of Outlast, version {version()}. It may be executed again: "
        "what is done "
        f"already is left alone.\n{body}"
    )


def current(db: Connection) -> tuple[int, str]:
    """Return the version in the database and the fingerprint of its functions; 0 if there is none.

    Raise SettingsError for a schema of a role that is not trusted, before reading anything in it.
    """
    schema_owner.check(db)
    schema = quoted(db.address.schema)
    try:
        found = db.execute(f"SELECT version, functions FROM {schema}.meta")
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0, ""
    return (found[0][0], found[0][1]) if found else (0, "")


def check(db: Connection) -> bool:
    """Return whether the schema is what this release needs. Raise StoreTooNew if it is newer."""
    there, made = current(db)
    if there > version():
        raise StoreTooNew(
            f"{db.address.place}: its schema {db.address.schema} is version {there}, this Outlast "
            f"supports up to {version()}. It was written by "
            "a newer Outlast: upgrade this one. Nothing was changed."
        )
    return there == version() and made == fingerprint(db.address.schema)


def migrate(db: Connection) -> None:
    """Bring the schema to this version.

    Stop waiting for a lock after LOCK_SECONDS_MAX and retry, up to TRIES_MAX times, so that other
    transactions are not held up. Raise StoreUnavailable if another release migrates at the same
    time.
    """
    if check(db):
        return
    for step in steps(db.address.schema, db.address.schema_owner):
        for turn in range(TRIES_MAX):
            try:
                with db.db().transaction():
                    db.db().execute(step)
                break
            except (errors.LockNotAvailable, errors.DeadlockDetected):
                if turn == TRIES_MAX - 1:
                    raise
    if not check(db):
        raise StoreUnavailable(
            f"{db.address.place}: another release of Outlast is migrating it. Try again."
        )
