"""Code in a Postgres schema of another role is never executed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg import errors

from outlast.errors import SettingsError
from outlast.store.commands import Record, RegisterWorker, Submit, UpdateSession
from outlast.store.postgres import migrate
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import RunQuery
from outlast.store.session_rows import FieldQuery, SessionQuery
from outlast.testing import servers

TRAP = """
SET search_path = outlast;
CREATE OR REPLACE FUNCTION seconds_{version}() RETURNS double precision LANGUAGE sql VOLATILE AS $$
    INSERT INTO public.caught VALUES (current_user);
    SELECT extract(epoch FROM clock_timestamp())::float8
$$;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with servers.postgres_server() as server:
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(
                "CREATE ROLE mallory LOGIN; CREATE ROLE victim LOGIN; CREATE ROLE team; CREATE ROLE admin LOGIN"
            )
        yield server.url


@pytest.fixture
def database(server) -> Iterator[str]:
    """Of a superuser. Every role may make schemas in it."""
    with psycopg.connect(server, autocommit=True) as db:
        db.execute("CREATE DATABASE shared")
        here = server.replace("/postgres?", "/shared?")
        with psycopg.connect(here, autocommit=True) as inside:
            inside.execute("GRANT CREATE ON DATABASE shared TO PUBLIC")
            inside.execute(
                "CREATE TABLE public.caught (who text); GRANT INSERT ON public.caught TO PUBLIC"
            )
        yield here
        db.execute("DROP DATABASE shared WITH (FORCE)")


def as_role(database: str, role: str, words: str = "") -> str:
    return database.replace("postgres@", f"{role}@") + words


def execute(address: str, statements: str) -> list[tuple[str, ...]]:
    with psycopg.connect(address, autocommit=True) as db:
        cursor = db.execute(statements)
        return cursor.fetchall() if cursor.description else []


def squat(database: str, role: str = "mallory") -> None:
    """Make a schema of this release, in which a function notes who calls it."""
    with closing(PostgresStore.at(as_role(database, role))) as store:
        store.open()
    execute(as_role(database, role), TRAP.format(version=migrate.version()))
    execute(as_role(database, role), "GRANT USAGE ON SCHEMA outlast TO PUBLIC")
    execute(as_role(database, role), "GRANT ALL ON ALL TABLES IN SCHEMA outlast TO PUBLIC")
    execute(as_role(database, role), "GRANT ALL ON ALL SEQUENCES IN SCHEMA outlast TO PUBLIC")
    execute(database, "TRUNCATE public.caught")


def use(address: str) -> None:
    with closing(PostgresStore.at(address)) as store:
        store.open()
        store.runs(RunQuery())
        store.queues()


def caught(database: str) -> list[tuple[str, ...]]:
    return execute(database, "SELECT DISTINCT who FROM public.caught")


@pytest.mark.parametrize("words", ["", "&migrate=no", "&schema_owner=victim"])
@pytest.mark.parametrize("role", ["victim", "postgres"])
def test_a_schema_of_another_role_is_refused_before_anything_in_it_is_called(
    database, role, words
) -> None:
    squat(database)
    with pytest.raises(
        SettingsError, match=r"schema outlast, .* belongs to mallory.*schema_owner=mallory"
    ):
        use(as_role(database, role, words))
    with pytest.raises(SettingsError, match="belongs to mallory"):
        PostgresStore.at(as_role(database, role, words)).versions()
    with pytest.raises(SettingsError, match="belongs to mallory"):
        PostgresStore.at(as_role(database, role, words)).migrate()
    assert caught(database) == []


def test_migration_sql_stops_at_a_schema_of_another_role(database) -> None:
    squat(database)
    execute(
        as_role(database, "mallory"),
        "SET search_path = outlast; CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO public.caught VALUES (current_user); RETURN NEW; END $$;"
        "CREATE TRIGGER trap BEFORE UPDATE ON meta FOR EACH ROW EXECUTE FUNCTION trap(); UPDATE meta SET functions = ''",
    )
    execute(database, "TRUNCATE public.caught")
    with pytest.raises(errors.RaiseException, match="schema outlast belongs to role mallory"):
        execute(database, migrate.script("outlast"))
    assert caught(database) == []


def test_a_role_that_the_address_names_is_trusted(database) -> None:
    squat(database)
    use(as_role(database, "victim", "&schema_owner=mallory"))
    assert ("victim",) in caught(database)


@pytest.mark.parametrize("how", ["member", "database"])
def test_database_owner_and_own_roles_are_trusted_except_by_a_superuser(database, how) -> None:
    squat(database, "admin")
    execute(
        database,
        {"member": "GRANT admin TO victim", "database": "ALTER DATABASE shared OWNER TO admin"}[
            how
        ],
    )
    try:
        use(as_role(database, "victim"))
        with pytest.raises(SettingsError, match="belongs to admin"):
            use(database)
    finally:
        execute(database, "REVOKE admin FROM victim")


def test_function_of_another_role_in_the_own_schema_is_refused(database) -> None:
    use(as_role(database, "victim"))
    execute(as_role(database, "victim"), "GRANT USAGE, CREATE ON SCHEMA outlast TO mallory")
    with pytest.raises(
        SettingsError, match="the right to create in schema outlast belongs to mallory"
    ):
        use(as_role(database, "victim"))
    execute(
        as_role(database, "mallory"),
        "CREATE FUNCTION outlast.epoch(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1'",
    )
    execute(as_role(database, "victim"), "REVOKE CREATE ON SCHEMA outlast FROM mallory")
    with pytest.raises(SettingsError, match="function epoch belongs to mallory"):
        use(as_role(database, "victim"))
    execute(database, "DROP FUNCTION outlast.epoch")
    execute(as_role(database, "victim"), "GRANT CREATE ON SCHEMA outlast TO PUBLIC")
    with pytest.raises(SettingsError, match="REVOKE CREATE ON SCHEMA outlast FROM PUBLIC"):
        use(as_role(database, "victim"))


def test_function_in_another_schema_does_not_shadow_a_builtin(database) -> None:
    use(as_role(database, "victim"))
    execute(
        database,
        "CREATE SCHEMA trap; GRANT USAGE ON SCHEMA trap TO PUBLIC;"
        "CREATE FUNCTION trap.pg_backend_pid() RETURNS int LANGUAGE sql AS $$ INSERT INTO public.caught VALUES (current_user); SELECT 1 $$;"
        "CREATE FUNCTION trap.equal(text, text) RETURNS boolean LANGUAGE sql AS $$ INSERT INTO public.caught VALUES (current_user); SELECT true $$;"
        "CREATE OPERATOR trap.= (FUNCTION = trap.equal, LEFTARG = text, RIGHTARG = text);"
        "ALTER ROLE victim SET search_path = trap, pg_catalog",
    )
    try:
        with closing(PostgresStore.at(as_role(database, "victim"))) as store:
            store.open()
            assert store.run("r") is None
            assert store.last_seq(1) == 0
    finally:
        execute(database, "ALTER ROLE victim RESET search_path")
    assert caught(database) == []


TRAPS = """
CREATE FUNCTION public.trap() RETURNS void LANGUAGE sql AS $$ INSERT INTO public.caught VALUES (current_user) $$;
DO $do$ DECLARE one record; what text; BEGIN
    FOR one IN
        SELECT o.name, l.oid::regtype AS l, r.oid::regtype AS r FROM unnest('{+,-,<,<=,>,>=,=,<>,||}'::text[]) o(name),
            unnest('{int2,int4,int8,float8,numeric,text,varchar,bool}'::regtype[]) l(oid), unnest('{int2,int4,int8,float8,numeric,text,varchar,bool}'::regtype[]) r(oid)
        WHERE NOT EXISTS (SELECT 1 FROM pg_operator p WHERE p.oprname = o.name AND p.oprleft = l.oid AND p.oprright = r.oid)
    LOOP
        what := CASE one.name WHEN '||' THEN 'text' WHEN '+' THEN 'float8' WHEN '-' THEN 'float8' ELSE 'boolean' END;
        EXECUTE format('CREATE FUNCTION public.%I(%s, %s) RETURNS %s LANGUAGE sql AS $f$ SELECT public.trap(); SELECT NULL::%s $f$',
                       'op_' || md5(one.name), one.l, one.r, what, what);
        EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.%I, LEFTARG = %s, RIGHTARG = %s)', one.name, 'op_' || md5(one.name), one.l, one.r);
    END LOOP;
END $do$;
"""
"""In `public`, an operator for every pair of types that the server has none for: an inexact match would be beaten by it."""


def test_operator_in_public_does_not_shadow_a_builtin_behind_a_pooler(database) -> None:
    """There `search_path` cannot be set, so each statement has operands of exactly the types of an operator."""
    address = as_role(database, "victim", "&pooler=yes")
    use(address)
    execute(database, TRAPS)
    with closing(PostgresStore.at(address)) as store:
        store.open()
        store.acquire_liveness("w")
        register, submit = (
            RegisterWorker("w", "host", 1, 60.0),
            Submit("r", "flow", "[]", "t", "s", worker="w"),
        )
        row = store.commit([register, submit, UpdateSession("s", "t", {"a": "1"})])[1].row
        store.commit([Record(row.pk, 1, row.fence, "step", "key", 1.0)])
        everything = RunQuery(
            statuses=("running",), workflow="flow", queue="default", items=False, undoing=False, parent="p",
            waiting_for="x", created_before=9e9, created_after=1, ended_after=1, before_pk=99,
        )  # fmt: skip
        for read in (
            lambda: store.run("r"), lambda: store.runs(everything), lambda: store.journal(1), lambda: store.last_seq(1),
            lambda: store.may_need_compensation("r"), lambda: store.done(1, ["a"]), lambda: store.done_count(1), lambda: store.history(1),
            lambda: store.messages(1), lambda: store.progress(1), store.workers, lambda: store.asked("w"), store.drains,
            lambda: store.durations([("a", "b")]), store.measured, store.dead_workers, store.queues,
            lambda: store.peek(("default",), ("flow",)), lambda: store.depth("default"), lambda: store.held("w"),
            lambda: store.cancels("w"), lambda: store.session("s"), lambda: store.items("s", "a", -1), lambda: store.fields(FieldQuery("s")),
            lambda: store.sessions(SessionQuery()), lambda: store.sessions(SessionQuery(before=(1, "a"))), store.recover,
        ):  # fmt: skip
            read()
        store.release_liveness("w")
    assert caught(database) == []
