"""Check that everything in a schema belongs to a trusted role.

A function runs with the rights of the role that calls it. Another role may have created the schema
first, with functions and tables of its own under Outlast's names. So Outlast reads and calls
nothing in a schema before this check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlast.errors import SettingsError

if TYPE_CHECKING:
    from outlast.store.postgres.connection import Connection

SHOWN_MAX = 5

_UNTRUSTED = """
WITH me AS (
    SELECT r.oid, r.rolname, r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = CURRENT_USER
), trusted AS (
    SELECT r.oid FROM pg_catalog.pg_roles r, me
    WHERE r.oid = me.oid OR r.rolsuper OR r.rolname = {owner}
       OR NOT me.rolsuper AND (
           pg_catalog.pg_has_role(me.oid, r.oid, 'USAGE') OR r.rolname = 'pg_database_owner'
           OR r.oid = (SELECT d.datdba FROM pg_catalog.pg_database d
               WHERE d.datname = pg_catalog.current_database()))
), schema AS (
    SELECT n.oid, n.nspname, n.nspowner, n.nspacl FROM pg_catalog.pg_namespace n
        WHERE n.nspname = {schema}
), found (what, owner) AS (
    SELECT 'schema ' || s.nspname::text, s.nspowner FROM schema s
    UNION ALL SELECT 'function ' || p.proname::text, p.proowner FROM pg_catalog.pg_proc p, schema s
        WHERE p.pronamespace = s.oid
    UNION ALL SELECT 'operator ' || o.oprname::text, o.oprowner
        FROM pg_catalog.pg_operator o, schema s WHERE o.oprnamespace = s.oid
    UNION ALL SELECT 'relation ' || c.relname::text, c.relowner FROM pg_catalog.pg_class c, schema s
        WHERE c.relnamespace = s.oid
    UNION ALL SELECT 'the right to create in schema ' || s.nspname::text, a.grantee
    FROM schema s, LATERAL pg_catalog.aclexplode(s.nspacl) a WHERE a.privilege_type = 'CREATE'
)
SELECT f.what, coalesce(r.rolname::text, 'PUBLIC') AS owner FROM found f LEFT
    JOIN pg_catalog.pg_roles r ON r.oid = f.owner
WHERE NOT EXISTS (SELECT 1 FROM trusted t WHERE t.oid = f.owner)
"""
"""Select what in a schema belongs to a role that this one has no reason to trust.

Trusted are this role, superusers and the role that the address names. All roles but superusers also
trust the owner of the database and every role whose rights they inherit.
"""


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def assertion(schema: str, owner: str | None) -> str:
    """Return a statement that fails if something in the schema belongs to an untrusted role."""
    query = _UNTRUSTED.format(schema=literal(schema), owner=literal(owner or ""))
    return f"""
DO $owners$ DECLARE found record; BEGIN
    FOR found IN {query} LIMIT 1 LOOP
        RAISE EXCEPTION '% belongs to role %, which this role has no reason to trust',
            found.what, found.owner
            USING HINT = 'Name that role in the address if you trust it: schema_owner='
                || found.owner;
    END LOOP;
END $owners$;
"""


def check(db: Connection) -> None:
    """Raise SettingsError if something in the schema belongs to an untrusted role."""
    address = db.address
    query = _UNTRUSTED.format(
        schema=literal(address.schema), owner=literal(address.schema_owner or "")
    )
    found = sorted(db.execute(query), key=lambda one: not one[0].startswith("schema "))
    if not found:
        return
    owner = found[0][1]
    theirs = [what for what, whose in found if whose == owner]
    listed = ", ".join(theirs[:SHOWN_MAX]) + (", …" if len(theirs) > SHOWN_MAX else "")
    advice = (
        f"REVOKE CREATE ON SCHEMA {address.schema} FROM PUBLIC."
        if owner == "PUBLIC"
        else f"If you trust that role, add schema_owner={owner} to the address; if not, name "
        "another schema: schema=…"
    )
    raise SettingsError(
        f"{address.place}: {listed} belongs to {owner}, which this user has no reason to trust: "
        "what is in a schema runs with "
        f"the rights of the user that calls it. Nothing was called. {advice}"
    )
