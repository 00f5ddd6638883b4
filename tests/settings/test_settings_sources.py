"""Where settings come from: keywords, the environment, .env, files of secrets, what other tools call it, defaults."""

import asyncio
import logging
import os
import subprocess
import sys
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from outlast import Outlast, SettingsError
from outlast.settings.load import load
from outlast.settings.origin import Kind
from outlast.testing import servers


def found(name, **given):
    """The value of a setting, and where it came from."""
    loaded = load(given)
    return getattr(loaded.settings, name), str(loaded.origins[name])


# -- their order


def test_each_source_wins_over_the_next(setenv, env_file, secret, monkeypatch):
    assert found("grace") == (30.0, "default")
    setenv(SHUTDOWN_TIMEOUT="40")
    assert found("grace") == (40.0, "SHUTDOWN_TIMEOUT")
    path = secret("outlast_grace", "50\n")
    assert found("grace") == (50.0, str(path))
    env_file("OUTLAST_GRACE=60")
    assert found("grace") == (60.0, "OUTLAST_GRACE in .env")
    setenv(OUTLAST_GRACE="70")
    assert found("grace") == (70.0, "OUTLAST_GRACE")
    assert found("grace", grace=80) == (80, "keyword")


def test_a_keyword_that_is_none_is_not_given(setenv):
    setenv(OUTLAST_GRACE="70")
    assert found("grace", grace=None) == (70.0, "OUTLAST_GRACE")


def test_an_empty_variable_is_not_set(setenv, env_file):
    setenv(
        OUTLAST_GRACE="",
        OUTLAST_STORE="",
        OUTLAST_HTTP=" ",
        DATABASE_URL="",
        REDIS_HOST="",
        SHUTDOWN_TIMEOUT="",
    )
    env_file("OUTLAST_LEASE=\nOUTLAST_HTTP=:8080\n")
    assert found("grace") == (30.0, "default")
    assert found("store") == ("sqlite:///outlast.db", "default")
    assert found("lease") == (30.0, "default")
    assert found("http") == (":8080", "OUTLAST_HTTP in .env")


def test_names_may_be_in_any_case_and_upper_case_wins(setenv):
    setenv(outlast_grace="9")
    assert found("grace") == (9.0, "OUTLAST_GRACE")
    setenv(OUTLAST_GRACE="8")
    assert found("grace") == (8.0, "OUTLAST_GRACE")


# -- names


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("OUTLAST_LEESE", "OUTLAST_LEASE"),
        ("OUTLAST_GRACE_SECONDS", "OUTLAST_GRACE"),
        ("OUTLAST_STORES", "OUTLAST_STORE"),
        ("outlast_stor", "OUTLAST_STORE"),
        ("OUTLAST_SECRET_DIR", "OUTLAST_SECRETS_DIR"),
        ("OUTLAST_STOR_FILE", "OUTLAST_STORE"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(setenv, name, near):
    setenv(**{name: "secret-value"})
    with pytest.raises(
        SettingsError, match=f"{name.upper()}: no such setting. Did you mean {near}"
    ) as raised:
        Outlast()
    assert "secret-value" not in str(raised.value)


def test_all_unknown_variables_are_named_at_once_and_what_there_is_if_nothing_is_near(setenv):
    setenv(OUTLAST_FROBNICATE="1", OUTLAST_LEESE="2")
    with pytest.raises(
        SettingsError, match=r"OUTLAST_FROBNICATE, OUTLAST_LEESE: .*Known: .*OUTLAST_GRACE"
    ):
        Outlast()


def test_an_unknown_variable_in_the_env_file_is_refused_too(env_file):
    env_file("OUTLAST_LEESE=3\n")
    with pytest.raises(SettingsError, match=r"OUTLAST_LEESE in \.env: .*OUTLAST_LEASE"):
        Outlast()


def test_what_kubernetes_sets_for_services_is_not_ours(setenv):
    setenv(
        OUTLAST_SERVICE_HOST="10.0.0.1", OUTLAST_SERVICE_PORT="80", OUTLAST_SERVICE_PORT_HTTP="80",
        OUTLAST_PORT="tcp://10.0.0.1:80", OUTLAST_PORT_80_TCP="tcp://10.0.0.1:80", OUTLAST_PORT_80_TCP_PROTO="tcp",
        OUTLAST_PORT_80_TCP_PORT="80", OUTLAST_PORT_80_TCP_ADDR="10.0.0.1", OUTLAST_WEB_SERVICE_HOST="10.0.0.2",
        OUTLAST_WEB_PORT="udp://10.0.0.2:53",
    )  # fmt: skip
    assert set(load({}).origins.values()) == {(Kind.DEFAULT, "", "")}


def test_a_port_that_somebody_typed_is_no_link_of_kubernetes(setenv):
    setenv(OUTLAST_HTTP_PORT="8080")
    with pytest.raises(SettingsError, match="OUTLAST_HTTP_PORT"):
        Outlast()


def test_variables_of_the_tests_are_not_settings(setenv):
    setenv(OUTLAST_TEST_ANYTHING="1")
    Outlast()


# -- .env


def test_an_env_file_has_comments_quotes_and_exports(env_file):
    env_file(
        "# a comment\n\n"
        "export OUTLAST_GRACE=40   # in seconds\n"
        "OUTLAST_STORE='sqlite:///a b#c.db'\n"
        'OUTLAST_HTTP_SECRET="two words"\n'
        "  OUTLAST_QUEUES = default,mail \r\n"
    )
    settings = load({}).settings
    assert settings.grace == 40
    assert settings.store == "sqlite:///a b#c.db"
    assert settings.http_secret == "two words"
    assert settings.queues == "default,mail"


def test_what_others_keep_in_the_env_file_is_theirs(env_file):
    env_file(
        "DATABASE_URL=postgresql://u@h/db\nOPENAI_API_KEY=x\nREDIS_HOST=r\nSHUTDOWN_TIMEOUT=9\nthis is no line\nOUTLAST_LEASE=20\n"
    )
    assert found("store") == ("sqlite:///outlast.db", "default")
    assert found("grace") == (30.0, "default")
    assert found("lease") == (20.0, "OUTLAST_LEASE in .env")


def test_another_env_file_may_be_named_or_none(env_file, setenv):
    env_file("OUTLAST_GRACE=40")
    env_file("OUTLAST_GRACE=50", "other.env")
    setenv(OUTLAST_ENV_FILE="other.env")
    assert found("grace") == (50.0, "OUTLAST_GRACE in other.env")
    setenv(OUTLAST_ENV_FILE="")
    assert found("grace") == (30.0, "default")


def test_the_files_may_be_named_in_lower_case_too(env_file, setenv, secret, monkeypatch, tmp_path):
    env_file("OUTLAST_GRACE=40")
    env_file("OUTLAST_GRACE=50", "other.env")
    setenv(outlast_env_file="other.env")
    assert found("grace") == (50.0, "OUTLAST_GRACE in other.env")
    setenv(OUTLAST_ENV_FILE="")
    path = secret("outlast_grace", "60")
    monkeypatch.delenv("OUTLAST_SECRETS_DIR")
    setenv(outlast_secrets_dir=str(path.parent))
    assert found("grace") == (60.0, str(path))


def test_an_env_file_that_is_named_must_be_there(setenv):
    setenv(OUTLAST_ENV_FILE="missing.env")
    with pytest.raises(
        SettingsError, match=r"missing\.env cannot be read .*OUTLAST_ENV_FILE names it"
    ):
        Outlast()


def test_only_the_env_file_of_the_working_folder_is_read(env_file, tmp_path, monkeypatch):
    env_file("OUTLAST_GRACE=40")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert found("grace") == (30.0, "default")


def test_a_virtual_environment_called_env_is_no_env_file(tmp_path):
    (tmp_path / ".env").mkdir()
    assert found("grace") == (30.0, "default")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("OUTLAST_GRACE\n", "OUTLAST_GRACE in .env has no value"),
        ("X=1\nOUTLAST_STORE='sqlite:///x.db\n", "line 2"),
        ("OUTLAST_ENV_FILE=other.env\n", "belongs in the environment"),
        ("OUTLAST_GRACE=soon\n", r"^OUTLAST_GRACE='soon' \(in .env\) is not a number"),
        ("OUTLAST_GRACE=0.1\n", "grace is from OUTLAST_GRACE in .env"),
    ],
)
def test_what_is_wrong_in_an_env_file_is_told_with_its_place(env_file, text, says):
    env_file(text)
    with pytest.raises(SettingsError, match=says):
        Outlast()


def test_an_env_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / ".env").write_bytes(b"OUTLAST_GRACE=\xff\xfe")
    with pytest.raises(SettingsError, match="not UTF-8"):
        Outlast()


def test_an_env_file_of_another_editor_may_begin_with_a_mark(tmp_path):
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfOUTLAST_GRACE=40\r\n")
    assert found("grace") == (40.0, "OUTLAST_GRACE in .env")


# -- files of secrets


def test_a_file_of_secrets_is_read_without_its_last_newline(secret):
    path = secret("outlast_http_secret", "hush hush\r\n")
    assert found("http_secret") == ("hush hush", str(path))
    secret("OUTLAST_STORE", "postgresql://u:p@h/db")
    assert found("store")[0] == "postgresql://u:p@h/db"


def test_other_files_of_the_folder_are_not_read(secret, tmp_path):
    secret("store", "sqlite:///wrong.db")
    (tmp_path / "secrets" / "kubernetes.io").mkdir()
    (tmp_path / "secrets" / "outlast_lease").mkdir()
    assert set(load({}).origins.values()) == {(Kind.DEFAULT, "", "")}


def test_a_misnamed_file_of_secrets_is_refused_with_the_nearest_name(
    secret, monkeypatch, tmp_path, caplog
):
    secret("outlast_stor", "postgresql://u:hush@h/db")
    with pytest.raises(
        SettingsError, match=r"outlast_stor in .*: no such setting. Did you mean OUTLAST_STORE\?"
    ) as said:
        load({})
    assert "hush" not in str(said.value)
    monkeypatch.delenv("OUTLAST_SECRETS_DIR")
    monkeypatch.setattr("outlast.settings.files.DEFAULT_FOLDER", tmp_path / "secrets")
    load({})  # where nobody has named the folder, others may have theirs in it
    assert "no such setting" in caplog.text


def test_a_folder_of_secrets_that_cannot_be_looked_into_is_refused(secret, monkeypatch):
    secret("outlast_store", "memory:")

    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.iterdir", refuse)
    with pytest.raises(SettingsError, match="cannot be listed"):
        load({})


def test_what_is_not_alike_is_not_suggested(setenv):
    setenv(OUTLAST_URL="x")
    with pytest.raises(SettingsError, match="Known: "):
        load({})


def test_a_variable_may_name_the_file_of_one_setting(setenv, env_file, tmp_path):
    (tmp_path / "pw").write_text("redis://:pw@h/0\n")
    setenv(OUTLAST_STORE_FILE=str(tmp_path / "pw"))
    assert found("store") == ("redis://:pw@h/0", f"{tmp_path}/pw (OUTLAST_STORE_FILE)")
    env_file(f"OUTLAST_HTTP_SECRET_FILE={tmp_path}/pw\n")
    setenv(OUTLAST_ENV_FILE=".env")
    assert found("http_secret") == (
        "redis://:pw@h/0",
        f"{tmp_path}/pw (OUTLAST_HTTP_SECRET_FILE in .env)",
    )


def test_the_file_of_a_setting_that_is_given_is_not_needed(setenv):
    setenv(OUTLAST_STORE_FILE="/nonexistent")
    assert found("store", store="memory:") == ("memory:", "keyword")


def test_a_file_that_is_named_wins_over_the_folder(secret, setenv, tmp_path):
    secret("outlast_grace", "40")
    (tmp_path / "grace").write_text("50")
    setenv(OUTLAST_GRACE_FILE=str(tmp_path / "grace"))
    assert found("grace")[0] == 50


def test_a_setting_and_its_file_exclude_each_other(setenv, env_file, tmp_path):
    (tmp_path / "grace").write_text("50")
    env_file("OUTLAST_GRACE=40")
    setenv(OUTLAST_GRACE_FILE=str(tmp_path / "grace"))
    with pytest.raises(
        SettingsError, match=r"OUTLAST_GRACE in \.env and OUTLAST_GRACE_FILE are both set"
    ):
        Outlast()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"), (b"\n", "is empty"), (b"\xff", "not UTF-8"), (b"x" * 70_000, "more than 65,536 bytes"),
        (b"s3cr3t", "is not a number"), (b"-5", "and not negative"),
    ],
)  # fmt: skip
def test_a_file_of_secrets_that_cannot_be_used_is_refused_and_not_shown(secret, content, says):
    path = secret("outlast_lease", content)
    with pytest.raises(SettingsError, match=says) as raised:
        Outlast()
    assert str(path) in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("name", ["OUTLAST_SECRETS_DIR", "OUTLAST_STORE_FILE"])
def test_files_that_are_named_must_be_there(setenv, name, tmp_path):
    setenv(**{name: str(tmp_path / "missing")})
    with pytest.raises(SettingsError, match=rf"{name}.*missing|missing.*{name}"):
        Outlast()


@pytest.mark.parametrize("name", ["OUTLAST_ENV_FILE", "OUTLAST_STORE_FILE"])
def test_a_pipe_cannot_be_read_twice_and_is_refused(setenv, name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    setenv(**{name: str(tmp_path / "pipe")})
    with pytest.raises(SettingsError, match=r"pipe.*not a regular file"):
        Outlast()


# -- what other tools call it


@pytest.mark.parametrize(
    ("variables", "address", "by"),
    [
        ({"DATABASE_URL": "postgresql://u:p@h/db"}, "postgresql://u:p@h/db", "DATABASE_URL"),
        ({"DATABASE_URL": "postgres://h"}, "postgres://h", "DATABASE_URL"),
        ({"DATABASE_URL": "postgresql+psycopg://u:p@h/db"}, "postgresql://u:p@h/db", "DATABASE_URL"),
        ({"DATABASE_URL": "postgresql+asyncpg://h/db?ssl=true"}, "postgresql://h/db?sslmode=require", "DATABASE_URL"),
        ({"DATABASE_URL": "postgresql://h/db?ssl=verify-full"}, "postgresql://h/db?sslmode=verify-full", "DATABASE_URL"),
        (
            {"DATABASE_URL": "postgresql://h/db?schema=public&sslmode=require&connection_limit=5&pgbouncer=true"},
            "postgresql://h/db?sslmode=require&pooler=yes", "DATABASE_URL",
        ),
        ({"DATABASE_URL": "mysql://h/db", "REDIS_URL": "rediss://h:1"}, "rediss://h:1?strict=yes", "REDIS_URL"),
        ({"DATABASE_URL": "sqlite:///theirs.db", "STATE_DB_PATH": "/data/a b?.db"}, "sqlite:////data/a%20b%3F.db", "STATE_DB_PATH"),
        ({"REDIS_URL": "rediss://:p@h?db=2&ssl_cert_reqs=none&max_connections=9"}, "rediss://:p@h?db=2&ssl_cert_reqs=none&strict=yes", "REDIS_URL"),
        ({"REDIS_HOST": "h"}, "redis://h:6379/0?strict=yes", "REDIS_HOST"),
        (
            {"REDIS_HOST": "h", "REDIS_PORT": "7", "REDIS_PASSWORD": "p@/:", "REDIS_DB": "3"},
            "redis://:p%40%2F%3A@h:7/3?strict=yes", "REDIS_HOST",
        ),
        ({"REDIS_HOST": "::1"}, "redis://[::1]:6379/0?strict=yes", "REDIS_HOST"),
        ({"REDIS_HOST": "h", "REDIS_PORT": "tcp://10.0.0.1:6380"}, "redis://h:6380/0?strict=yes", "REDIS_HOST"),
        ({"STATE_DB_PATH": "state.db"}, "sqlite:///state.db", "STATE_DB_PATH"),
        ({"STATE_DB_PATH": "sqlite:///state.db"}, "sqlite:///state.db", "STATE_DB_PATH"),
        ({"REDIS_PORT": "tcp://10.0.0.1:6379"}, "sqlite:///outlast.db", "default"),
    ],
)  # fmt: skip
def test_a_store_is_found_by_what_other_tools_call_it(setenv, variables, address, by):
    setenv(**variables)
    assert found("store") == (address, by)


def test_of_several_the_first_in_the_order_is_taken(setenv):
    setenv(STATE_DB_PATH="s.db")
    assert found("store")[1] == "STATE_DB_PATH"
    setenv(REDIS_HOST="h")
    assert found("store")[1] == "REDIS_HOST"
    setenv(REDIS_URL="redis://h")
    assert found("store")[1] == "REDIS_URL"
    setenv(DATABASE_URL="postgres://h/db")
    assert found("store")[1] == "DATABASE_URL"
    setenv(OUTLAST_STORE="sqlite:///mine.db")
    assert found("store") == ("sqlite:///mine.db", "OUTLAST_STORE")


def test_a_driver_in_the_scheme_of_our_own_variable_is_left_out(setenv):
    setenv(OUTLAST_STORE="postgresql+psycopg2://h/db?schema=x")
    assert found("store")[0] == "postgresql://h/db?schema=x"


def opened(*args, **given):
    async def main():
        async with Outlast(*args, **given):
            pass

    asyncio.run(main())


def test_a_store_that_was_found_so_is_told_once_when_it_is_opened(setenv, caplog, tmp_path):
    setenv(STATE_DB_PATH="state.db")
    app = Outlast()
    assert caplog.records == []
    opened()
    [record] = [record for record in caplog.records if record.name == "outlast.settings"]
    assert record.levelno == logging.WARNING
    assert "sqlite:///state.db" in record.getMessage()
    assert "STATE_DB_PATH" in record.getMessage()
    assert "OUTLAST_STORE" in record.getMessage()
    assert (tmp_path / "state.db").exists()
    caplog.clear()
    opened(app.settings.store)
    assert [record for record in caplog.records if record.name == "outlast.settings"] == []


def test_the_password_of_a_store_that_was_found_so_is_not_logged(setenv, caplog):
    setenv(REDIS_HOST="h", REDIS_PASSWORD="s3cr3t")
    assert "s3cr3t" in load({}).address()
    assert "redis://:***@h:6379/0" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_where_the_default_store_is_there_too_it_must_be_said_which(setenv, tmp_path):
    """Who upgrades must not find the runs of outlast.db gone, and a schema in the database of the web shop."""
    (tmp_path / "outlast.db").touch()
    setenv(DATABASE_URL="postgresql://u:s3cr3t@h/shop")
    with pytest.raises(
        SettingsError, match=r"two stores are possible: outlast.db.*OUTLAST_STORE"
    ) as raised:
        opened()
    assert "postgresql://u:***@h/shop from DATABASE_URL" in str(raised.value)
    assert "s3cr3t" not in str(raised.value)
    opened("memory:")
    setenv(OUTLAST_STORE="sqlite:///named.db")
    opened()


def test_the_default_store_by_another_name_is_no_second_one(setenv, tmp_path):
    opened()
    setenv(STATE_DB_PATH=str(tmp_path / "outlast.db"))
    opened()


@pytest.mark.parametrize(
    ("name", "text"), [("REDIS_PORT", "six"), ("REDIS_PORT", "70000"), ("REDIS_DB", "-1")]
)
def test_a_number_of_redis_that_is_none_is_an_error_for_who_needs_it(setenv, name, text):
    setenv(REDIS_HOST="h", **{name: text})
    with pytest.raises(SettingsError, match=f"{name}='{text}' .*OUTLAST_STORE"):
        opened()
    opened("memory:")


@pytest.mark.parametrize(
    "variables",
    [
        {"REDIS_HOST": "cache", "REDIS_PORT": "redis://:s3cr3t@x:abc"},
        {"REDIS_HOST": "redis://:s3cr3t@cache:6379"},
        {"REDIS_HOST": "s3cr3t@cache"},
    ],
)
def test_an_address_in_the_place_of_a_part_of_one_is_an_error_that_does_not_show_it(
    setenv, variables
):
    setenv(**variables)
    loaded = load({})
    with pytest.raises(SettingsError, match="REDIS_") as raised:
        loaded.address()
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("path", [":memory:", "postgresql://u:s3cr3t@h/db"])
def test_a_path_of_state_that_names_no_file_is_passed_over(setenv, path):
    setenv(STATE_DB_PATH=path)
    assert found("store") == ("sqlite:///outlast.db", "default")


def test_an_address_of_others_that_cannot_be_read_is_an_error_for_who_needs_it(setenv):
    setenv(DATABASE_URL="postgresql://u:s3/cr3t@h/db")
    app = Outlast()
    app.configure("memory:")
    with pytest.raises(SettingsError, match="Percent-encode"):
        asyncio.run(Outlast().__aenter__())


def test_a_cache_that_was_found_so_is_refused_and_one_that_was_named_is_warned_of(setenv, caplog):
    with servers.redis_server() as cache:
        setenv(REDIS_URL=cache.url)
        with pytest.raises(SettingsError, match="set OUTLAST_STORE to its address"):
            opened()
        setenv(OUTLAST_STORE=cache.url)
        opened()
    assert "appendonly" in caplog.text


def test_the_database_of_another_program_is_used_in_a_schema_of_its_own(setenv, postgres_server):
    name = f"shop_{uuid4().hex}"
    with psycopg.connect(postgres_server.url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            parts = urlsplit(postgres_server.url)._replace(
                scheme="postgresql+asyncpg", path=f"/{name}"
            )
            options = f"{parts.query}&" if parts.query else ""
            setenv(
                DATABASE_URL=parts._replace(
                    query=f"{options}schema=public&connection_limit=5"
                ).geturl()
            )
            opened()
            where = parts._replace(scheme="postgresql").geturl()
            with psycopg.connect(where) as shop:
                schemas = shop.execute(
                    "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename = 'runs'"
                ).fetchall()
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert schemas == [("outlast",)]


# -- what it costs


@pytest.mark.parametrize(
    ("text", "loaded"), [("OTHER=1\n", "False"), ("OUTLAST_GRACE=40\n", "True")]
)
def test_the_reader_of_env_files_is_only_loaded_where_one_has_a_setting(env_file, text, loaded):
    env_file(text)
    code = "import sys; from outlast import Outlast; Outlast(); print('dotenv' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout == f"{loaded}\n"
