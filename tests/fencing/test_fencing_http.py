"""The fence in a header, and a server that refuses a stale writer."""

import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from outlast import StaleFence
from outlast.fencing import FenceGate, fence_headers, read_headers
from support.waiting import WAIT_SECONDS


@pytest.fixture
def notes():
    """A real server on the loopback: PUT writes, 409 to the stale, 400 to those who do not say who they are. (url, what was written)"""
    written, gate = [], FenceGate()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                run, fence = read_headers(self.headers)
                with gate.passing(self.path, fence):
                    written.append((run, body.decode()))
                self.send_response(204)
            except StaleFence:
                self.send_response(409)
            except ValueError:
                self.send_response(400)
            self.end_headers()

        def log_message(self, *args): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", written
        server.shutdown()
        thread.join()


def put(url, body, headers):
    request = urllib.request.Request(url, data=body.encode(), headers=headers, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_server_refuses_an_older_claim_once_a_younger_one_has_written(notes):
    url, written = notes
    assert put(f"{url}/orders/7", "a", fence_headers("order-7", fence=41)) == 204
    assert put(f"{url}/orders/7", "b", fence_headers("order-7", fence=42)) == 204
    assert put(f"{url}/orders/7", "late", fence_headers("order-7", fence=41)) == 409
    assert put(f"{url}/orders/8", "c", fence_headers("order-8", fence=41)) == 204
    assert [body for _, body in written] == ["a", "b", "c"]


def test_request_without_fence_headers_is_refused(notes):
    url, written = notes
    assert put(f"{url}/orders/7", "a", {}) == 400
    assert put(f"{url}/orders/7", "a", {"Outlast-Run": "r", "Outlast-Fence": "soon"}) == 400
    assert written == []


@pytest.mark.parametrize(
    "run",
    [
        "order-7",
        "été 東京 🌊",
        " spaces ",
        "50%",
        "a,b;c",
        'q"uote\\',
        "a/b:c@d+e=f",
        "%41",
        "\u202eab",
    ],
)
def test_any_run_id_survives_a_header(notes, run):
    url, written = notes
    headers = fence_headers(run, fence=1)
    assert headers["Outlast-Run"].isascii() and headers["Outlast-Run"].isprintable()
    assert put(f"{url}/x", "a", headers) == 204
    assert written == [(run, "a")]


def test_plain_ids_are_readable_in_the_header():
    assert fence_headers("team/order-7:a@b", fence=42) == {
        "Outlast-Run": "team/order-7:a@b",
        "Outlast-Fence": "42",
    }


def test_header_names_are_case_insensitive():
    assert read_headers({"outlast-run": "r", "OUTLAST-FENCE": " 42 "}) == ("r", 42)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Outlast-Run": "r"},
        {"Outlast-Fence": "42"},
        *(
            {"Outlast-Run": "r", "Outlast-Fence": bad}
            for bad in ("", "0", "-1", "+1", "1.0", "4 2", "٤٢", "1_0", "9" * 16, "1" * 5000)
        ),
        {"Outlast-Run": "r", "outlast-run": "s", "Outlast-Fence": "42"},
        {"Outlast-Run": "%ff", "Outlast-Fence": "42"},
    ],
)
def test_malformed_headers_raise_value_error(headers):
    with pytest.raises(ValueError):
        read_headers(headers)


def test_gate_blocks_a_stale_writer_while_a_younger_one_writes():
    gate, order = FenceGate(), []
    inside, go_on = threading.Event(), threading.Event()

    def young():
        with gate.passing("r", 42):
            inside.set()
            go_on.wait(WAIT_SECONDS)
            order.append("young")

    def stale():
        try:
            with gate.passing("r", 41):
                order.append("stale")
        except StaleFence:
            order.append("refused")

    threads = [threading.Thread(target=young), threading.Thread(target=stale)]
    threads[0].start()
    inside.wait(WAIT_SECONDS)
    threads[1].start()
    threads[1].join(0.1)
    assert order == []
    go_on.set()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert order == ["young", "refused"]


def test_failed_write_releases_the_gate_and_keeps_its_fence():
    gate = FenceGate()
    with pytest.raises(RuntimeError), gate.passing("r", 42):
        raise RuntimeError
    with pytest.raises(StaleFence) as refused, gate.passing("r", 41):
        raise AssertionError("not reached")
    assert refused.value.newest == 42
    with gate.passing("r", 42):
        pass


def test_gate_uses_the_given_mapping():
    newest: dict[str, int] = {}
    with FenceGate(newest).passing("r", 42):
        pass
    with pytest.raises(StaleFence), FenceGate(newest).passing("r", 41):
        pass
