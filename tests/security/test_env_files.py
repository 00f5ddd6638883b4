"""A hostile `.env` or address loads no code, opens no store and reveals no variable."""

from __future__ import annotations

import os

import pytest

from outlast import Outlast
from outlast.errors import SettingsError
from outlast.settings.load import load
from outlast.settings.third_party_env import STORES
from outlast.store.address import store_at
from support.cli import answer_in


@pytest.fixture(autouse=True)
def cloned_folder(tmp_path, monkeypatch):
    """A working folder that came from elsewhere, and an environment without settings."""
    folder = tmp_path / "cloned"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in list(os.environ):
        if name.startswith("OUTLAST_") or name in STORES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("OUTLAST_SECRETS_DIR", "")
    return folder


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://evil.example/db",
        "POSTGRES://evil.example/db",
        "postgresql+psycopg://evil.example/db",
        "redis://evil.example/0",
        "rediss://evil.example/0",
        "unix:///run/docker.sock",
        "sqlite:////tmp/elsewhere.db",
        "sqlite:///../elsewhere.db",
        "sqlite:///%2e%2e/elsewhere.db",
        "sqlite:///link/elsewhere.db",
        "file:///tmp/elsewhere",
        "file:../elsewhere",
    ],
)
def test_unnamed_env_file_opens_no_store_outside_its_folder(
    address, cloned_folder, capsys, monkeypatch
) -> None:
    (cloned_folder / "link").symlink_to("..")
    (cloned_folder / ".env").write_text(f"OUTLAST_STORE={address}\n")
    answer = answer_in(cloned_folder, ["runs"], capsys)
    assert answer.code == 2
    assert "OUTLAST_STORE in .env" in answer.err
    assert "OUTLAST_ENV_FILE=.env" in answer.err

    monkeypatch.setenv("OUTLAST_ENV_FILE", ".env")
    loaded = load({})
    assert loaded.store_error is None
    assert loaded.origins["store"].place == ".env"


@pytest.mark.parametrize(
    "address", ["sqlite:///agents.db", "sqlite:///data/agents.db", "file:agents", "memory:"]
)
def test_unnamed_env_file_may_name_a_store_in_its_folder(address, cloned_folder) -> None:
    (cloned_folder / ".env").write_text(f"OUTLAST_STORE={address}\n")
    assert load({}).address() == address


def test_a_store_named_elsewhere_makes_the_one_of_the_env_file_unimportant(
    cloned_folder, monkeypatch
) -> None:
    (cloned_folder / ".env").write_text("OUTLAST_STORE=postgresql://evil.example/db\n")
    assert load({"store": "memory:"}).address() == "memory:"
    monkeypatch.setenv("OUTLAST_STORE", "sqlite:////tmp/mine.db")
    assert load({}).address() == "sqlite:////tmp/mine.db"


@pytest.mark.parametrize(
    "name", ["OUTLAST_STORE_FILE", "OUTLAST_QUEUES_FILE", "OUTLAST_SECRETS_DIR"]
)
def test_unnamed_env_file_cannot_point_to_other_files(name, cloned_folder, monkeypatch) -> None:
    monkeypatch.delenv("OUTLAST_SECRETS_DIR")
    secrets = cloned_folder / "secrets"
    secrets.mkdir()
    (secrets / "outlast_store").write_text("postgresql://evil.example/db")
    (cloned_folder / ".env").write_text(f"{name}={secrets}\n")
    with pytest.raises(
        SettingsError, match=f"{name} in .env would read other files.*OUTLAST_ENV_FILE=.env"
    ):
        Outlast()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("reference", ["${AWS_KEY}", "${AWS_KEY:-none}"])
def test_an_env_file_puts_no_variable_of_the_environment_into_an_address(
    reference, named, cloned_folder, monkeypatch
) -> None:
    monkeypatch.setenv("AWS_KEY", "s3cr3t")
    if named:
        monkeypatch.setenv("OUTLAST_ENV_FILE", ".env")
    (cloned_folder / ".env").write_text(f"OUTLAST_STORE='sqlite:///{reference}.db'\n")
    with pytest.raises(
        SettingsError, match=r"refers to \$\{AWS_KEY\}.*expands no variables"
    ) as error:
        load({})
    assert "s3cr3t" not in str(error.value)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("sslkey=/tmp/evil.so:key", "sslkey .* without a colon"),
        ("sslkey=pkcs11%3Akey", "sslkey .* without a colon"),
        ("sslcert=engine:cert", "sslcert .* without a colon"),
        ("sslkeylogfile=/tmp/x", "sslkeylogfile is not allowed"),
        ("servicefile=/tmp/x", "servicefile is not allowed"),
        ("passfile=/tmp/x", "passfile is not allowed.*PGPASSFILE"),
        ("gssdelegation=1", "gssdelegation is not allowed"),
        ("gsslib=gssapi", "gsslib is not allowed"),
        ("replication=database", "replication is not allowed"),
        ("oauth_issuer=https://evil.example", "oauth_issuer is not allowed"),
        ("scram_client_key=x", "scram_client_key is not allowed"),
    ],
)
def test_an_option_of_a_postgres_address_loads_no_code_and_names_no_file_of_secrets(
    option, says
) -> None:
    with pytest.raises(SettingsError, match=says):
        store_at(f"postgresql://localhost/db?{option}")


def test_the_options_that_people_use_are_allowed() -> None:
    store_at(
        "postgresql://u:p@h1:5432,h2:5433/db?sslmode=verify-full&sslrootcert=/etc/ca.pem&sslcert=/c.pem&sslkey=/k.pem"
        "&connect_timeout=3&keepalives_idle=5&target_session_attrs=read-write&application_name=a&options=-c%20x.y%3D1"
        "&channel_binding=require&gssencmode=disable&require_auth=scram-sha-256&schema=s&pooler=yes&migrate=no"
    )
    store_at("postgresql:///?service=agents")
