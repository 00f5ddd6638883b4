"""No password of an address is in anything that is shown."""

import asyncio
import sys
import traceback

import pytest

from outlast import Outlast, OutlastError, SettingsError
from outlast.settings import Settings
from outlast.settings.redaction import masked
from outlast.store.address import store_at

UNQUOTED = [
    "postgresql:///u:s3cr3t@h/db", "postgresql://u:12/s3cr3t@h/db", "postgresql://u:12?s3cr3t@h/db",
    "postgresql://u:12#s3cr3t@h/db", "postgresql://u:x[s3cr3t@h/db", "postgresql://u:s3cr3t@h\u2100/db", "postgresql:u:s3cr3t@h",
    "redis://:12/s3cr3t@h", "redis://:12?s3cr3t@h", "redis:///:s3cr3t@h:1/0", "redis://:x[s3cr3t@h/0",
    "redis://u:s3cr3t@h\u2100", "file://[u:s3cr3t@h/x", "sqlite://u:s3cr3t@h\u2100/x",
]  # fmt: skip
"""Passwords that had to be percent-encoded, or stand where none can be."""


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("memory:", "memory:"),
        ("sqlite:////data/a@b:c.db", "sqlite:////data/a@b:c.db"),
        ("file:///data/outlast", "file:///data/outlast"),
        ("postgresql://h/db", "postgresql://h/db"),
        ("postgresql://user@h/db", "postgresql://user@h/db"),
        (
            "postgresql://user:s3cr3t@h:5432/db?sslmode=require",
            "postgresql://user:***@h:5432/db?sslmode=require",
        ),
        ("postgresql://user:s3/cr@3t?@h/db", "postgresql://user:***@h/db"),
        (
            "postgresql://h/db?user=u&password=s3cr3t&sslmode=x",
            "postgresql://h/db?user=u&password=***&sslmode=x",
        ),
        (
            "postgresql:///db?host=/run&sslpassword=s3cr3t@",
            "postgresql:///db?host=/run&sslpassword=***",
        ),
        ("redis://:s3cr3t@h:6379/0", "redis://:***@h:6379/0"),
        ("redis://s3cr3t@h", "redis://:***@h"),
        ("rediss://u:s3cr3t@[::1]:6379", "rediss://u:***@[::1]:6379"),
        ("unix://u:s3cr3t@/run/redis.sock?db=0", "unix://u:***@/run/redis.sock?db=0"),
        ("host=h password='s3 cr3t' user=u", "host=h password=*** user=u"),
        ("u:s3cr3t@h/db", "u:***@h/db"),
        ("postgresql:///user:s3cr3t@h/db", "postgresql:///user:***@h/db"),
        ("//user:s3cr3t@h/db", "//user:***@h/db"),
        ("redis:///:s3cr3t@h:6379/0", "redis:///:***@h:6379/0"),
        ("postgresql:u:s3cr3t@h", "postgresql::***@h"),
        ("postgres:s3cr3t@h/db", "postgres::***@h/db"),
        ("postgresql://u@h:1:s3cr3t/db", "postgresql://u@h:***/db"),
        ("redis://h:s3cr3t", "redis://h:***"),
        ("postgresql://u@h1:5432,h2:5433/db", "postgresql://u@h1:5432,h2:5433/db"),
        ("postgresql://h/db?pass%77ord=s3cr3t", "postgresql://h/db?pass%77ord=***"),
        ("sqlite:///u:s3cr3t@h/x?x=1", "sqlite:///u:***@h/x?x=1"),
        ("sqlite:///postgresql%3A//u%3As3cr3t%40h/db", "sqlite:///***"),
        ("REDIS://s3cr3t@h", "REDIS://:***@h"),
        ("", ""),
    ],
)
def test_a_password_is_hidden_and_the_rest_is_shown(address, shown):
    assert masked(address) == shown
    assert masked(masked(address)) == shown


@pytest.mark.parametrize(
    "place", ["u:{}@h", "u:{}@h/db?x=1", "{}@h:1/0", "h/db?password={}", "h/db?x=1&api_key={}"]
)
@pytest.mark.parametrize(
    "secret",
    [
        "tops3cr3t",
        "tops3cr3t/x",
        "tops3cr3t?",
        "a@tops3cr3t",
        "tops3cr3t#",
        "tops3cr3t%40",
        ":tops3cr3t",
    ],
)
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_no_unquoted_character_lets_a_part_of_it_out(scheme, place, secret):
    assert "tops3cr3t" not in masked(f"{scheme}://{place.format(secret)}")


def test_settings_can_be_printed_without_a_secret():
    text = repr(Settings(store="redis://:s3cr3t@h", http_secret="hush"))
    assert text.startswith("Settings(store='redis://:***@h', lease=30.0, ")
    assert "http_secret=***" in text
    assert "hush" not in text
    assert "http_secret=''" in repr(Settings())


@pytest.mark.parametrize(
    "address",
    [
        "mysql://u:s3cr3t@h/db", "sqlite://u:s3cr3t@h/x.db", "sqlite://u:s3cr3t@[h/x.db", "postgresq://u:s3cr3t@h/db",
        "host=h password=s3cr3t", "u:s3cr3t@h", "//u:s3cr3t@h/db",
        *UNQUOTED,
    ],
)  # fmt: skip
def test_an_address_that_no_store_answers_to_is_refused_without_its_password(address):
    with pytest.raises(SettingsError) as raised:
        store_at(address)
    assert "s3cr3t" not in str(raised.value)

    with pytest.raises(SettingsError) as raised:
        Outlast(address)
    assert "s3cr3t" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    "address", [*UNQUOTED, "postgresql://u:12?x=s3cr3t@h/db", "redis://:12?x=s3cr3t@h"]
)
def test_an_address_that_cannot_be_read_says_how_to_write_a_password(address):
    with pytest.raises(SettingsError, match="Percent-encode special characters in the password"):
        store_at(address)


@pytest.mark.parametrize(
    "address",
    [
        "redis://s3cr3t@127.0.0.1:1/0", "redis://u:s3cr3t@127.0.0.1:1/0", "unix://:s3cr3t@/nowhere/redis.sock",
        "postgresql://u:s3cr3t@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db?user=u@realm&pass%77ord=s3cr3t",
        "redis://u:s3cr3t@127.0.0.1:1/0?x=1", "postgresql://u:s3cr3t@127.0.0.1:1/db?x=1", "postgresql://u@127.0.0.1:1:s3cr3t/db",
    ],
)  # fmt: skip
def test_a_server_that_cannot_be_reached_is_told_of_without_its_password(address, caplog):
    async def main():
        app = Outlast(address, store_patience=0.1)
        assert "s3cr3t" not in repr(app.settings)
        async with app:
            pass

    with pytest.raises(OutlastError) as raised:
        asyncio.run(main())
    assert "s3cr3t" not in "".join(traceback.format_exception(raised.value))
    assert "s3cr3t" not in caplog.text


@pytest.mark.parametrize(
    "address",
    [
        "SQLITE:///x.db",
        "Memory:",
        "File:x",
        "POSTGRESQL://h/db",
        "Redis://h",
        "Postgresql+psycopg://h/db",
    ],
)
def test_a_scheme_may_be_in_any_case(address):
    settings = Outlast(address).settings
    assert settings.store.partition(":")[0] in ("sqlite", "memory", "file", "postgresql", "redis")
    store_at(settings.store)
    store_at(address.replace("+psycopg", ""))


def test_an_address_can_be_checked_without_the_package_of_its_store(monkeypatch):
    for name in ("psycopg", "redis"):
        for module in [
            known
            for known in sys.modules
            if known.split(".")[0] == name
            or known.startswith("outlast.store." + {"psycopg": "postgres", "redis": "redis"}[name])
        ]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, name, None)
    for address in ("postgresql://u:p@h/db", "redis://h"):
        app = Outlast(address)
        with pytest.raises(
            SettingsError, match=r"need the package .*pip install 'outlast\[(postgres|redis)\]'"
        ):
            store_at(app.settings.store)
