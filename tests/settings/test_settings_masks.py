"""No password of an address is in anything that is shown."""

import asyncio

import pytest

from outlast import Outlast, SettingsError
from outlast.settings import Settings
from outlast.settings.masks import masked
from outlast.store.address import store_at


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
        ("postgresql:///db?host=/run&sslpassword=s3cr3t@", "postgresql:///db?host=/run&sslpassword=***"),
        ("redis://:s3cr3t@h:6379/0", "redis://:***@h:6379/0"),
        ("redis://s3cr3t@h", "redis://:***@h"),
        ("rediss://u:s3cr3t@[::1]:6379", "rediss://u:***@[::1]:6379"),
        ("unix://u:s3cr3t@/run/redis.sock?db=0", "unix://u:***@/run/redis.sock?db=0"),
        ("host=h password='s3 cr3t' user=u", "host=h password=*** user=u"),
        ("u:s3cr3t@h/db", "u:***@h/db"),
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
    ["tops3cr3t", "tops3cr3t/x", "tops3cr3t?", "a@tops3cr3t", "tops3cr3t#", "tops3cr3t%40", ":tops3cr3t"],
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
        "host=h password=s3cr3t", "u:s3cr3t@h",
    ],
)  # fmt: skip
def test_an_address_that_no_store_answers_to_is_refused_without_its_password(address):
    with pytest.raises(SettingsError) as raised:
        store_at(address)
    assert "s3cr3t" not in str(raised.value)

    async def main():
        async with Outlast(address):
            pass

    with pytest.raises(SettingsError) as raised:
        asyncio.run(main())
    assert "s3cr3t" not in str(raised.value)
