"""An HTTP call happens once, says whether it happened, and tells no secrets. Its counterparts are real: the ledger's process, and
servers that misbehave on purpose."""

import asyncio
import os
import socket
import ssl
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from ledger_tools import HERE, Ledger, Program, chance, until
from process_tools import look

from outlast import NotInRun, RunParked, SettingsError, StaleFence, run, workflow
from outlast.effects import (
    HTTPAnswer,
    HTTPFailure,
    HTTPNotSent,
    HTTPRefused,
    HTTPUnclear,
    answers,
    http_call,
    http_effect,
)
from outlast.values.codec import codec_for

LONG = "OUTLAST_TEST_KILLS" in os.environ
SECRET = "hunter2-hunter2"
QUICK = {"effect_margin": 0.05, "verify_attempts": 1}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    with Ledger(tmp_path_factory.mktemp("ledger")) as ledger:
        yield ledger


@contextmanager
def server(*replies: bytes, read: bool = True, hold: float = 0.0, pause: float = 0.0):
    """A server that reads a request and replies with these bytes, one to each connection, and ends the connection. With a `pause`, byte by byte."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def serve() -> None:
            for reply in replies:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    if read:
                        requests.append(receive(connection))
                    time.sleep(hold)
                    with suppress(ConnectionError):  # who has waited long enough has gone
                        for part in (
                            [reply] if not pause else [reply[at : at + 1] for at in range(len(reply))]
                        ):
                            connection.sendall(part)
                            time.sleep(pause)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests


def receive(connection: socket.socket) -> bytes:
    """A whole request."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    wanted = int(length[0].partition(b":")[2]) if length else 0
    while len(body) < wanted:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def reply(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


plain = http_effect("plain", timeout=5.0, undo=None)
hasty = http_effect("hasty", timeout=0.5, connect_timeout=0.3, undo=None)
lenient = http_effect(
    "lenient", timeout=5.0, statuses={404: "happened", 409: "refused", 503: "refused"}, undo=None
)
secretive = http_effect(
    "secretive",
    timeout=5.0,
    headers={"Authorization": lambda: f"Bearer {SECRET}", "X-Api-Key": SECRET},
    kept_headers=("x-trace",),
    undo=None,
)
broken_secret = http_effect(
    "broken_secret", timeout=5.0, headers={"Authorization": lambda: f"{SECRET}\n"}, undo=None
)
missing_secret = http_effect(
    "missing_secret", timeout=5.0, headers={"Authorization": lambda: {}["PAY_TOKEN"]}, undo=None
)
EFFECTS = {
    effect.name: effect
    for effect in (plain, hasty, lenient, secretive, broken_secret, missing_secret, http_call)
}


@workflow
async def call(name: str, method: str, url: str, options: dict[str, Any]) -> HTTPAnswer:
    return await EFFECTS[name](method, url, **options)


def do(name: str, url: str, method: str = "POST", *, store: str = "memory:", **options: Any) -> HTTPAnswer:
    return run(call(name, method, url, options), id="r", store=store, **QUICK)


def send(name: str, url: str, method: str = "POST", **options: Any) -> HTTPAnswer:
    """Without a run: its plain function."""
    return asyncio.run(EFFECTS[name].request(method, url, **options))


# -- what is sent, what comes back


def test_it_brings_a_key_and_the_fence_and_its_answer_is_recorded(ledger):
    answer = do("plain", f"{ledger.url}/act", json={"amount": 3})
    line = ledger.log()[-1]
    assert (answer.status, answer.json()) == (200, {"n": line["n"], "key": line["key"]})
    assert (line["run"], line["body"]) == ("r", {"amount": 3})
    assert line["fence"] > 0
    assert len(line["key"]) >= 16
    assert answer.headers["content-type"] == "application/json"


def test_a_key_of_ones_own_is_sent(ledger):
    do("plain", f"{ledger.url}/act", json=1, key="order-7-ü".encode().hex())
    assert ledger.log()[-1]["key"] == "order-7-ü".encode().hex()


def test_outside_a_run_no_two_calls_share_a_key_that_nobody_gave():
    with pytest.raises(NotInRun, match=r"plain\.fn\(\.\.\., key="):
        plain("POST", "http://127.0.0.1/")
    with server(reply("200 OK")) as (url, requests):
        asyncio.run(plain.fn("POST", url))
    assert b"idempotency-key" not in requests[0].lower()


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"json": {"a": [1, None]}}, b'{"a":[1,null]}'),
        ({"form": {"amount": "10", "to": "ä b"}}, b"amount=10&to=%C3%A4+b"),
        ({}, b""),
    ],
)
def test_bodies_of_every_kind(options, sent):
    with server(reply("204 No Content")) as (url, requests):
        answer = do("plain", f"{url}/x", params={"q": "1 2"}, headers={"X-Mine": "yes"}, **options)
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert body == sent
    assert head.startswith((b"POST /x?q=1%202 ", b"POST /x?q=1+2 "))
    assert b"\r\nx-mine: yes\r\n" in head.lower() + b"\r\n"
    assert (answer.status, answer.body, answer.text, answer.content) == (204, "", "", b"")


def test_bytes_go_and_come_as_they_are():
    data = bytes(range(256))
    with server(reply("200 OK", data)) as (url, requests):
        answer = send("plain", url, content=data)
    assert requests[0].endswith(data)
    assert answer.content == data
    assert answer.is_base64
    with pytest.raises(ValueError, match=r"its bytes are in \.content"):
        _ = answer.text
    codec = codec_for(HTTPAnswer)
    assert codec.decode(codec.encode(answer)) == answer


def test_a_long_body_is_cut_and_says_so():
    brief = http_effect("brief", timeout=5.0, body_size_max=10, undo=None)
    with server(reply("200 OK", b'{"a": "' + b"x" * 100_000 + b'"}')) as (url, _):
        answer = asyncio.run(brief.request("GET", url))
    assert (len(answer.content), answer.is_cut) == (10, True)
    with pytest.raises(ValueError, match="was cut"):
        answer.json()


def test_only_some_headers_are_kept_and_no_cookies():
    with server(reply("200 OK", b"{}", Location="/a/1", Set_Cookie="id=1", X_Other="x")) as (url, _):
        assert set(send("plain", url).headers) == {"location"}
    with server(reply("200 OK", b"{}", X_Trace="t")) as (url, _):
        assert send("secretive", url).headers == {"x-trace": "t"}


# -- whether it happened


@pytest.mark.parametrize(
    ("status", "means"),
    [
        (200, "happened"), (201, "happened"), (204, "happened"), (303, "happened"), (304, "happened"),
        (301, "unclear"), (302, "unclear"), (307, "refused"), (308, "refused"),
        (400, "refused"), (401, "refused"), (402, "refused"), (404, "refused"), (422, "refused"), (425, "refused"),
        (429, "refused"), (408, "unclear"), (409, "unclear"), (499, "unclear"),
        (500, "unclear"), (502, "unclear"), (503, "unclear"), (504, "unclear"), (100, "unclear"), (600, "unclear"),
    ],
)  # fmt: skip
def test_what_a_status_says(status, means):
    assert answers.meaning(status) == means


def test_what_a_status_says_can_be_told():
    for status, means in ((404, HTTPAnswer), (409, HTTPRefused), (503, HTTPRefused), (500, HTTPUnclear)):
        with server(reply(f"{status} Word", b"why")) as (url, _):
            try:
                found: Any = send("lenient", url)
            except HTTPFailure as error:
                found = error
                assert (error.status, error.detail) == (status, "why")
        assert type(found) is means


def test_a_refusal_is_the_workflows_exception_and_says_what_the_server_said(ledger):
    with pytest.raises(HTTPRefused) as refused:
        do("plain", f"{ledger.url}/nowhere", json=1)
    assert (refused.value.status, refused.value.method, refused.value.url) == (
        400,
        "POST",
        f"{ledger.url}/nowhere",
    )
    assert str(refused.value) == (
        f'POST {ledger.url}/nowhere: the server refused it, so it did not happen (400 {{"error": "not for this ledger"}}).'
    )


def test_a_redirect_is_not_followed():
    with server(reply("307 Temporary", Location="http://127.0.0.1:1/")) as (url, _):
        with pytest.raises(HTTPRefused):
            send("secretive", url)


def test_where_nobody_listens_nothing_was_sent():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(HTTPNotSent, match="nothing was sent, so it did not happen"):
        do("plain", f"http://127.0.0.1:{port}/")
    with pytest.raises(HTTPNotSent):
        send("plain", "http://no-such-host.invalid/")
    with pytest.raises(HTTPNotSent):
        send("plain", "ftp://127.0.0.1/")
    with pytest.raises(HTTPNotSent):
        send("plain", "http://127.0.0.1:99999999/")
    with pytest.raises(HTTPNotSent):
        send("plain", "127.0.0.1/path")


def test_a_connection_that_does_not_come_about_was_not_sent():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        try:
            for _ in range(3):  # until its queue is full, and the next one waits
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(full.getsockname())
                waiting.append(one)
            time.sleep(0.1)
            with pytest.raises(HTTPNotSent, match="ConnectTimeout"):
                send("hasty", f"http://127.0.0.1:{full.getsockname()[1]}/")
        finally:
            for one in waiting:
                one.close()


def test_a_handshake_that_fails_was_not_sent():
    with server(b"this is no TLS", read=False) as (url, _):
        with pytest.raises(HTTPNotSent):
            send("plain", url.replace("http:", "https:"))
    with server(b"", read=False) as (url, _):
        with pytest.raises(HTTPNotSent):
            send("plain", url.replace("http:", "https:"))


@pytest.mark.parametrize(
    "bad",
    [b"", b"HTT", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", b"nonsense\r\n\r\n"],
    ids=["nothing", "half a line", "half a body", "nonsense"],
)
def test_without_a_whole_answer_nobody_knows(bad):
    with server(bad) as (url, _), pytest.raises(HTTPUnclear, match="nobody knows whether it happened"):
        send("plain", url)


def test_an_answer_that_takes_too_long_is_one_that_nobody_knows():
    with server(reply("200 OK"), hold=1.5) as (url, _):
        with pytest.raises(HTTPUnclear, match=r"within 0\.5 s"):
            send("hasty", url)


def test_a_server_that_answers_byte_by_byte_holds_nobody_for_longer_than_the_time_out():
    brisk = http_effect("brisk", timeout=0.2, undo=None)
    with server(reply("200 OK"), pause=0.02) as (url, _), pytest.raises(HTTPUnclear, match=r"within 0\.2 s"):
        asyncio.run(brisk.request("POST", url))


def test_a_secret_that_takes_too_long_is_a_request_that_was_not_sent():
    async def never() -> str:
        return await asyncio.get_running_loop().create_future()

    waiting = http_effect("waiting", timeout=0.1, headers={"Authorization": never}, undo=None)
    with pytest.raises(HTTPNotSent, match="nothing was sent"):
        asyncio.run(waiting.request("POST", "http://127.0.0.1:9/"))


def test_what_nobody_knows_parks_the_run_for_a_person(ledger, tmp_path):
    before = len(ledger.lines("act"))
    with pytest.raises(RunParked, match="hasty"):
        do("hasty", f"{ledger.url}/act?fault=cut", json=1)
    assert len(ledger.lines("act")) == before + 1


def test_a_stale_fence_is_what_it_is_called(ledger):
    assert ledger.post("/act", "younger", run="stale", fence=10**9) == 200

    async def main() -> None:
        from outlast import fencing

        headers = fencing.fence_headers("stale", fence=7)
        stale = http_effect("stale", timeout=5.0, headers=headers, undo=None)
        await stale.request("POST", f"{ledger.url}/act", key="older", json=1)

    with pytest.raises(StaleFence) as refused:
        asyncio.run(main())
    assert (refused.value.fence, refused.value.newest) == (7, 10**9)


# -- what is left open, and found out


@workflow
async def pay(base: str, how: str) -> int:
    answer = await http_effects(base)("POST", f"{base}{how}", json={"amount": 1})
    return int(answer.json()["n"])


_made: dict[str, Any] = {}


def http_effects(base: str) -> Any:
    """The ledger's address is known only when it is up: a program has it in its settings."""
    if base not in _made:
        _made[base] = http_effect(
            "pay_verified", timeout=0.6, verify_url=f"{base}/happened?key={{key}}", undo=None
        )
    return _made[base]


@pytest.mark.parametrize("fault", ["cut", "500", "cut-before", "503"])
def test_verify_finds_out_and_it_happens_once(ledger, fault):
    n = run(pay(ledger.url, f"/act?fault={fault}&name={fault}"), id=f"v-{fault}", store="memory:", **QUICK)
    lines = [line for line in ledger.lines("act") if line["run"] == f"v-{fault}"]
    assert [line["n"] for line in lines] == [n]


def test_an_answer_that_comes_too_late_has_happened_all_the_same(ledger):
    n = run(pay(ledger.url, "/act?delay=0.7"), id="late", store="memory:", effect_margin=1.0)
    lines = [line for line in ledger.lines("act") if line["run"] == "late"]
    assert [line["n"] for line in lines] == [n]


willing = http_effect("willing", timeout=3.0, idempotent=True, backoff=0.01, undo=None)


@workflow
async def pay_willingly(url: str) -> int:
    answer = await willing("POST", url, json={"amount": 1})
    return int(answer.json()["n"])


@pytest.mark.parametrize("fault", ["cut", "500", "cut-before", "503"])
def test_an_idempotent_call_is_made_again_under_its_key(ledger, fault):
    n = run(
        pay_willingly(f"{ledger.url}/once?fault={fault}&faults=2"), id=f"i-{fault}", store="memory:", **QUICK
    )
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
def test_a_secret_that_cannot_be_sent_is_not_recorded_either(tmp_path, name, ledger):
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
def test_what_must_not_be_recorded_is_refused_before_it_is(url, options):
    with pytest.raises(ValueError) as refused:
        plain("POST", url, **options)
    assert SECRET not in str(refused.value)


# -- making them


def test_httpx_is_asked_for_where_it_is_missing(monkeypatch):
    monkeypatch.setattr("outlast.effects.http.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"outlast\[httpx\]"):
        http_effect("anything", timeout=1)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(HTTPNotSent, match=r"outlast\[httpx\]"):
        send("plain", "http://127.0.0.1:1/")


@pytest.mark.parametrize("url", ["https://pay.example/charges", "https://pay.example/charges?key={KEY}"])
def test_a_verify_url_without_the_key_is_refused_as_it_would_find_any_call(url):
    with pytest.raises(SettingsError, match=r"verify_url of effect charge .*\{key\}"):
        http_effect("charge", timeout=1, verify_url=url)


def test_a_client_of_ones_own_has_the_last_word_on_how_it_is_sent(tmp_path):
    import httpx

    made = []

    def client() -> httpx.AsyncClient:
        made.append(httpx.AsyncClient(auth=("me", SECRET), headers={"X-Client": "mine"}))
        return made[-1]

    own = http_effect("own", timeout=5.0, client=client, undo=None)
    with server(reply("200 OK"), reply("200 OK")) as (url, requests):
        for _ in range(2):
            asyncio.run(own.request("POST", url, key="k"))
    assert all(
        b"authorization: basic" in request.lower() and b"x-client: mine" in request.lower()
        for request in requests
    )
    assert [one.is_closed for one in made] == [True, True]


def test_an_encrypted_call():
    """With a certificate of our own, good for a hundred years and for 127.0.0.1 alone."""
    import httpx

    tls = Path(__file__).parent / "tls"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "cert.pem", tls / "key.pem")
    trusting = ssl.create_default_context(cafile=str(tls / "cert.pem"))
    own = http_effect("tls", timeout=5.0, client=lambda: httpx.AsyncClient(verify=trusting), undo=None)
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


def test_many_at_once_leave_no_connection_open(ledger):
    async def main() -> tuple[int, int]:
        before = open_sockets()
        await asyncio.gather(*(plain.request("GET", f"{ledger.url}/up") for _ in range(50)))
        return before, open_sockets()

    def open_sockets() -> int:
        names = (one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink())
        return sum(str(name).startswith("socket:") for name in names)

    before, after = asyncio.run(main())
    assert after == before


# -- deaths


@pytest.mark.timeout(200)
@pytest.mark.parametrize("kind", ["verified", "idempotent", "blind"])
def test_killed_at_any_moment_of_a_call_it_happens_once(ledger, tmp_path, kind):
    """`blind` has nobody to ask: after a death in the act a person is."""
    rng = chance(f"http kills {kind}")
    path = "/once" if kind == "idempotent" else "/act"
    for number in range(12 if LONG else 3):
        folder = tmp_path / str(number)
        folder.mkdir()
        before = len(ledger.log())
        start = lambda: Program(  # noqa: E731
            str(HERE / "programs_ledger" / "http_once.py"), folder, kind, f"{ledger.url}{path}?delay=0.3"
        )
        program = start()
        until(lambda: has_intent(folder) or program.ended)
        time.sleep(rng.uniform(0, 0.45))
        program.kill()
        said = start().result(60)
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
        return "intent" in look(folder / "outlast.db").kinds("pay")
    except sqlite3.OperationalError:
        return False
