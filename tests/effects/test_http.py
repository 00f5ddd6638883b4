"""An HTTP effect sends a request once and says whether it happened."""

import asyncio
import socket
import threading
from typing import Any

import pytest
from http_effect_tools import AwaitedClient, do, plain, reply, send, send_until_timeout, server
from ledger_tools import Ledger

from outlast import NotInRun, RunParked, StaleFence, workflow
from outlast.codec.codecs import codec_for
from outlast.effects import (
    HTTPAnswer,
    HTTPFailure,
    HTTPNotSent,
    HTTPRefused,
    HTTPUnclear,
    answers,
    http_effect,
)
from outlast.testing import App
from support.waiting import WAIT_SECONDS


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    with Ledger(tmp_path_factory.mktemp("ledger")) as ledger:
        yield ledger


# -- what is sent, what comes back


def test_call_carries_key_and_fence_and_records_the_answer(ledger):
    answer = do("plain", f"{ledger.url}/act", json={"amount": 3})
    line = ledger.log()[-1]
    assert (answer.status, answer.json()) == (200, {"n": line["n"], "key": line["key"]})
    assert (line["run"], line["body"]) == ("r", {"amount": 3})
    assert line["fence"] > 0
    assert len(line["key"]) >= 16
    assert answer.headers["content-type"] == "application/json"


def test_key_of_the_caller_is_sent(ledger):
    do("plain", f"{ledger.url}/act", json=1, key="order-7-ü".encode().hex())
    assert ledger.log()[-1]["key"] == "order-7-ü".encode().hex()


def test_call_outside_a_run_sends_no_key():
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
def test_json_form_and_empty_bodies_are_sent(options, sent):
    with server(reply("204 No Content")) as (url, requests):
        answer = do("plain", f"{url}/x", params={"q": "1 2"}, headers={"X-Mine": "yes"}, **options)
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert body == sent
    assert head.startswith((b"POST /x?q=1%202 ", b"POST /x?q=1+2 "))
    assert b"\r\nx-mine: yes\r\n" in head.lower() + b"\r\n"
    assert (answer.status, answer.body, answer.text, answer.content) == (204, "", "", b"")


def test_bytes_are_sent_and_received_unchanged():
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


def test_long_body_is_truncated_and_marked():
    brief = http_effect("brief", timeout=WAIT_SECONDS, body_size_max=10, undo=None)
    with server(reply("200 OK", b'{"a": "' + b"x" * 100_000 + b'"}')) as (url, _):
        answer = asyncio.run(brief.request("GET", url))
    assert (len(answer.content), answer.is_cut) == (10, True)
    with pytest.raises(ValueError, match="was cut"):
        answer.json()


def test_only_selected_headers_are_kept():
    with server(reply("200 OK", b"{}", Location="/a/1", Set_Cookie="id=1", X_Other="x")) as (
        url,
        _,
    ):
        assert set(send("plain", url).headers) == {"location"}
    with server(reply("200 OK", b"{}", X_Trace="t")) as (url, _):
        assert send("secretive", url).headers == {"x-trace": "t"}


blind = http_effect("blind", timeout=10.0, client=AwaitedClient, undo=None)


@workflow
async def pay_blindly(url: str) -> None:
    await blind("POST", url, json=1)


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
def test_status_says_whether_the_call_happened(status, means):
    assert answers.meaning(status) == means


def test_meaning_of_a_status_can_be_configured():
    for status, means in (
        (404, HTTPAnswer),
        (409, HTTPRefused),
        (503, HTTPRefused),
        (500, HTTPUnclear),
    ):
        with server(reply(f"{status} Word", b"why")) as (url, _):
            try:
                found: Any = send("lenient", url)
            except HTTPFailure as error:
                found = error
                assert (error.status, error.detail) == (status, "why")
        assert type(found) is means


def test_refusal_reaches_the_workflow_with_the_answer(ledger):
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


def test_redirect_is_not_followed():
    with server(reply("307 Temporary", Location="http://127.0.0.1:1/")) as (url, _):
        with pytest.raises(HTTPRefused):
            send("secretive", url)


def test_refused_connection_means_not_sent():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody else can listen there
        with pytest.raises(HTTPNotSent, match="nothing was sent, so it did not happen"):
            do("plain", f"http://127.0.0.1:{bound.getsockname()[1]}/")
    with pytest.raises(HTTPNotSent):
        send("plain", "http://no-such-host.invalid/")
    with pytest.raises(HTTPNotSent):
        send("plain", "ftp://127.0.0.1/")
    with pytest.raises(HTTPNotSent):
        send("plain", "http://127.0.0.1:99999999/")
    with pytest.raises(HTTPNotSent):
        send("plain", "127.0.0.1/path")


def test_connect_timeout_means_not_sent():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        try:
            for _ in range(8):  # until its queue is full, and the next one waits
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(full.getsockname())
                waiting.append(one)
            unlucky = http_effect("unlucky", timeout=WAIT_SECONDS, connect_timeout=0.1, undo=None)
            with pytest.raises(HTTPNotSent, match="ConnectTimeout"):
                asyncio.run(unlucky.request("POST", f"http://127.0.0.1:{full.getsockname()[1]}/"))
        finally:
            for one in waiting:
                one.close()


def test_failed_tls_handshake_means_not_sent():
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
def test_incomplete_answer_is_unclear(bad):
    with (
        server(bad) as (url, _),
        pytest.raises(HTTPUnclear, match="it is unknown whether it happened"),
    ):
        send("plain", url)


def test_answer_after_the_timeout_is_unclear():
    held = threading.Event()
    with server(reply("200 OK"), hold=held) as (url, requests):
        with pytest.raises(HTTPUnclear, match=rf"within {WAIT_SECONDS} s"):
            send_until_timeout(url, requests)
        held.set()


def test_slow_drip_of_bytes_is_cut_by_the_timeout():
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    with (
        server(endless, drips=True) as (url, requests),
        pytest.raises(HTTPUnclear, match=rf"within {WAIT_SECONDS} s"),
    ):
        send_until_timeout(url, requests)


def test_slow_secret_means_not_sent():
    async def never() -> str:
        return await asyncio.get_running_loop().create_future()

    waiting = http_effect("waiting", timeout=0.1, headers={"Authorization": never}, undo=None)
    with pytest.raises(HTTPNotSent, match="nothing was sent"):
        asyncio.run(waiting.request("POST", "http://127.0.0.1:9/"))


def test_unclear_call_parks_the_run(ledger):
    before = len(ledger.lines("act"))
    with pytest.raises(RunParked, match="blind"):
        App().run(pay_blindly(f"{ledger.url}/act?fault=cut"), id="r")
    assert len(ledger.lines("act")) == before + 1


def test_stale_fence_raises_stale_fence(ledger):
    assert ledger.post("/act", "younger", run="stale", fence=10**9) == 200

    async def main() -> None:
        from outlast import fencing

        headers = fencing.fence_headers("stale", fence=7)
        stale = http_effect("stale", timeout=WAIT_SECONDS, headers=headers, undo=None)
        await stale.request("POST", f"{ledger.url}/act", key="older", json=1)

    with pytest.raises(StaleFence) as refused:
        asyncio.run(main())
    assert (refused.value.fence, refused.value.newest) == (7, 10**9)
