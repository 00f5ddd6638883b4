"""HTTP effects are verified or repeated, keep secrets out of the store, and survive kills."""

import asyncio
import gc
import os
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_effect_tools import SECRET, AwaitedClient, do, plain, reply, send, server
from ledger_tools import HERE, Ledger, Program, until

from outlast import SettingsError, workflow
from outlast.effects import (
    HTTPNotSent,
    http_effect,
)
from outlast.testing import App
from support.seeds import seeded_random
from support.snapshots import read_snapshot
from support.waiting import WAIT_SECONDS

LONG = "OUTLAST_TEST_KILLS" in os.environ


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    with Ledger(tmp_path_factory.mktemp("ledger")) as ledger:
        yield ledger


# -- what is left open, and found out: on the virtual clock, which stands still while a request is under way


@workflow
async def pay(base: str, how: str) -> int:
    answer = await http_effects(base)("POST", f"{base}{how}", json={"amount": 1})
    return int(answer.json()["n"])


_made: dict[str, Any] = {}


def http_effects(base: str) -> Any:
    """The ledger's address is known only when it is up: a program has it in its settings."""
    if base not in _made:
        _made[base] = http_effect(
            "pay_verified",
            timeout=10.0,
            verify_url=f"{base}/happened?key={{key}}",
            client=AwaitedClient,
            undo=None,
        )
    return _made[base]


@pytest.mark.parametrize("fault", ["cut", "500", "cut-before", "503"])
def test_verified_call_happens_once(ledger, fault):
    n = App().run(pay(ledger.url, f"/act?fault={fault}"), id=f"v-{fault}")
    lines = [line for line in ledger.lines("act") if line["run"] == f"v-{fault}"]
    assert [line["n"] for line in lines] == [n]


willing = http_effect("willing", timeout=10.0, idempotent=True, client=AwaitedClient, undo=None)


@workflow
async def pay_willingly(url: str) -> int:
    answer = await willing("POST", url, json={"amount": 1})
    return int(answer.json()["n"])


@pytest.mark.parametrize("fault", ["cut", "500", "cut-before", "503"])
def test_idempotent_call_is_repeated_under_its_key(ledger, fault):
    n = App().run(pay_willingly(f"{ledger.url}/once?fault={fault}&faults=2"), id=f"i-{fault}")
    lines = [line for line in ledger.lines("act") if line["run"] == f"i-{fault}"]
    assert [line["n"] for line in lines] == [n]


# -- secrets


def test_secrets_are_sent_and_not_recorded(tmp_path):
    with server(reply("200 OK", b"{}")) as (url, requests):
        do("secretive", url, store=f"sqlite:///{tmp_path}/o.db", json={"amount": 1})
    assert f"authorization: bearer {SECRET}".encode() in requests[0].lower()
    assert f"x-api-key: {SECRET}".encode() in requests[0].lower()
    assert_not_in_the_store(tmp_path)


@pytest.mark.parametrize("name", ["broken_secret", "missing_secret"])
def test_unsendable_secret_is_not_recorded(tmp_path, name, ledger):
    with pytest.raises(HTTPNotSent) as failed:
        do(name, f"{ledger.url}/act", store=f"sqlite:///{tmp_path}/o.db")
    assert SECRET not in str(failed.value)
    assert_not_in_the_store(tmp_path)


def assert_not_in_the_store(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) > 1000
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://127.0.0.1:1/", {"headers": {"Authorization": SECRET}}),
        ("http://127.0.0.1:1/", {"headers": {"x-api-KEY": SECRET}}),
        ("http://127.0.0.1:1/", {"headers": {"Cookie": SECRET}}),
        ("http://127.0.0.1:1/", {"headers": {"My-Access-Token": SECRET}}),
        ("http://127.0.0.1:1/", {"headers": {"Idempotency-Key": "mine"}}),
        (f"http://me:{SECRET}@127.0.0.1:1/", {}),
        ("http://127.0.0.1:1/", {"json": 1, "form": {"a": "b"}}),
    ],
)
def test_secrets_in_recorded_arguments_are_refused(url, options):
    with pytest.raises(ValueError) as refused:
        plain("POST", url, **options)
    assert SECRET not in str(refused.value)


# -- making them


def test_missing_httpx_is_a_clear_error(monkeypatch):
    monkeypatch.setattr("outlast.effects.http.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"outlast\[httpx\]"):
        http_effect("anything", timeout=1)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(HTTPNotSent, match=r"outlast\[httpx\]"):
        send("plain", "http://127.0.0.1:1/")


@pytest.mark.parametrize(
    "url", ["https://pay.example/charges", "https://pay.example/charges?key={KEY}"]
)
def test_verify_url_without_the_key_is_refused(url):
    with pytest.raises(SettingsError, match=r"verify_url of effect charge .*\{key\}"):
        http_effect("charge", timeout=1, verify_url=url)


def test_custom_client_sends_the_call(tmp_path):
    made = []

    def client() -> httpx.AsyncClient:
        made.append(httpx.AsyncClient(auth=("me", SECRET), headers={"X-Client": "mine"}))
        return made[-1]

    own = http_effect("own", timeout=WAIT_SECONDS, client=client, undo=None)
    with server(reply("200 OK"), reply("200 OK")) as (url, requests):
        for _ in range(2):
            asyncio.run(own.request("POST", url, key="k"))
    assert all(
        b"authorization: basic" in request.lower() and b"x-client: mine" in request.lower()
        for request in requests
    )
    assert [one.is_closed for one in made] == [True, True]


def test_tls_call_succeeds_with_a_trusted_certificate():
    """With a certificate of our own, good for a hundred years and for 127.0.0.1 alone."""
    tls = Path(__file__).parent / "tls"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "cert.pem", tls / "key.pem")
    trusting = ssl.create_default_context(cafile=str(tls / "cert.pem"))
    own = http_effect(
        "tls", timeout=WAIT_SECONDS, client=lambda: httpx.AsyncClient(verify=trusting), undo=None
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                try:
                    with context.wrap_socket(connection, server_side=True) as safe:
                        safe.recv(65536)
                        safe.sendall(reply("200 OK", b"safe"))
                except OSError:
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        assert asyncio.run(own.request("GET", url)).text == "safe"
        with pytest.raises(HTTPNotSent, match="CERTIFICATE_VERIFY_FAILED"):  # nobody vouches for it
            send("plain", url)


def test_concurrent_calls_leave_no_connection_open(ledger):
    async def main() -> tuple[int, int]:
        gc.collect()  # sockets of earlier tests
        before = open_sockets()
        await asyncio.gather(*(plain.request("GET", f"{ledger.url}/up") for _ in range(50)))
        return before, open_sockets()

    def open_sockets() -> int:
        names = (one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink())
        return sum(str(name).startswith("socket:") for name in names)

    before, after = asyncio.run(main())
    assert after <= before


# -- deaths


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "kind",
    [
        "verified",
        *(pytest.param(kind, marks=pytest.mark.extended) for kind in ("idempotent", "blind")),
    ],
)
def test_call_happens_once_after_sigkill(ledger, tmp_path, kind):
    """Nobody can be asked about `blind`: after a death in its act the run is parked."""
    rng = seeded_random(f"http kills {kind}")
    path = "/once" if kind == "idempotent" else "/act"
    for number in range(12 if LONG else 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        before = len(ledger.log())
        start = lambda: Program(  # noqa: E731
            str(HERE / "programs_ledger" / "http_once.py"),
            folder,
            kind,
            f"{ledger.url}{path}?delay=0.3",
        )
        program = start()
        until(lambda: has_intent(folder) or program.has_ended)
        time.sleep(rng.uniform(0, 0.45))
        program.kill()
        said = start().result()
        acts = [line for line in ledger.log()[before:] if line["what"] == "act"]
        if kind != "blind" or isinstance(said, int):
            assert [line["n"] for line in acts] == [said], f"said {said}, did {acts}"
        else:
            assert said["error"] == "RunParked"
            assert len(acts) <= 1


def has_intent(folder: Path) -> bool:
    import sqlite3

    if not (folder / "outlast.db").exists():
        return False
    try:
        return "intent" in read_snapshot(folder / "outlast.db").kinds("pay")
    except sqlite3.OperationalError:
        return False


def test_client_must_be_a_function():
    from outlast.effects import http_effect

    with pytest.raises(SettingsError, match="must be a function that returns"):
        http_effect("ask", timeout=5, client=httpx.AsyncClient())
