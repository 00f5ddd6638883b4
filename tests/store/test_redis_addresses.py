"""Addresses, passwords, rights and warnings of the Redis store."""

import logging
import re

import pytest
import redis
from redis_fault_tools import ALWAYS, held, opened, step

from outlast.errors import SettingsError, StoreUnavailable
from outlast.store.address import store_at
from outlast.store.commands import (
    RegisterWorker,
    Send,
    Submit,
    Sweep,
    UpdateSession,
)
from outlast.store.protocol import CommitUnknown
from outlast.store.redis import server_check
from outlast.testing import servers
from support.redis_tenants import PASSWORD, rule_for


@pytest.fixture
def server():
    with servers.redis_server(None, *ALWAYS) as server:
        yield server


@pytest.fixture
def store(server):
    with opened(server.url) as store:
        yield store


@pytest.fixture
def client(server):
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--appendonly", "no"), "appendonly is off"),
        (("--appendonly", "yes", "--appendfsync", "no"), "appendfsync is no"),
        (
            (*ALWAYS, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"),
            "maxmemory-policy is allkeys-lru",
        ),
    ],
)
def test_unsafe_server_is_warned_of_once_and_refused_if_strict(options, said, caplog):
    server_check._warned.clear()
    with servers.redis_server(None, *options) as server:
        for _ in range(2):
            with opened(server.url):
                pass
        assert [record.levelname for record in caplog.records if said in record.message] == [
            "WARNING"
        ]
        for strict in ("strict", "strict=1"):
            with pytest.raises(SettingsError, match=said):
                store_at(f"{server.url}?{strict}").open()
        with opened(f"{server.url}?strict=0"):
            pass


def test_safe_server_is_not_warned_of(server, caplog):
    with opened(f"{server.url}?strict"):
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("redis://localhost/0?colour=red", "unknown option colour"),
        ("redis://localhost/zero", "the database in"),
        ("redis://localhost?strict=maybe", "strict in"),
        ("redis://localhost?wait=some", "wait in"),
        ("redis://localhost?prefix={a}", "prefix in"),
        ("redis://localhost?prefix=", "prefix in"),
        ("redis://localhost:port", "must be a number"),
        ("unix://", "has no socket path"),
        ("redis://localhost?ssl_ca_certs=x", "apply only to rediss:// addresses"),
    ],
)
def test_invalid_address_is_refused(address, said):
    with pytest.raises(SettingsError, match=re.escape(said)):
        store_at(address)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("redis://user:secret@host:1234/3", "redis://user:***@host:1234/3"),
        ("rediss://:secret@host", "rediss://:***@host"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock"),
        ("redis://host?prefix=other&strict&wait=2", "redis://host?prefix=other"),
    ],
)
def test_place_is_the_address_without_its_password(address, place):
    assert store_at(address).place == place


def test_errors_and_logs_do_not_contain_the_password(caplog):
    with servers.redis_server(None, "--appendonly", "no") as server, caplog.at_level(logging.DEBUG):
        with redis.Redis.from_url(server.url) as client:
            client.config_set("requirepass", "right")
        path = server.url.removeprefix("unix://")
        with pytest.raises(SettingsError) as wrong:
            store_at(f"unix://:wrong-secret@{path}").open()
        with pytest.raises(SettingsError):
            store_at(server.url).open()
        with opened(f"unix://:right@{path}") as store:
            store.acquire_liveness("w")
            with redis.Redis.from_url(server.url, password="right") as client:
                client.config_set("requirepass", "changed")
                client.client_kill_filter(skipme=True, _type="normal")
            with pytest.raises((StoreUnavailable, CommitUnknown)) as lost:
                for _ in range(2):
                    store.commit([Submit("a", "flow", "[]", "t", "s")])
        with redis.Redis.from_url(server.url, password="changed") as client:
            client.config_set("requirepass", "")
    everything = f"{wrong.value!r} {wrong.value.__cause__!r} {lost.value!r} {lost.value.__cause__!r} {caplog.text}"
    assert "secret" not in everything
    assert "right" not in everything


def test_documented_rights_suffice_and_without_info_only_leases_count(caplog):
    with servers.redis_server(None, *ALWAYS) as server, redis.Redis.from_url(server.url) as client:
        client.execute_command(*rule_for("outlast"))
        address = f"unix://outlast:{PASSWORD}@{server.url.removeprefix('unix://')}?strict"
        with opened(address) as store:
            store.acquire_liveness("w")
            store.listen(lambda: None)
            row = held(store)
            store.commit(
                [
                    step(row, 1),
                    Send("r", "m", "1", "1"),
                    UpdateSession("s", "t", {"a": "1"}),
                    Sweep(),
                ]
            )
            store.recover()
            assert len(store.journal(row.pk)) == 1
            assert client.smembers("{outlast}:present") == {b"w"}
        client.execute_command("ACL", "SETUSER", "outlast", "-info")
        with opened(address.removesuffix("?strict")) as store:
            store.acquire_liveness("w")
            assert store.commit([RegisterWorker("w", "host", 1, 30.0), Sweep()])[1].workers == ()
            assert client.smembers("{outlast}:present") == set()
