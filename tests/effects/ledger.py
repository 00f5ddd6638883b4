"""The outside world: `ledger.py FOLDER PORT` is an HTTP server with a durable log of its own, slow, and with a memory for fences.

    POST /act        applied at every request that comes: what is done twice is there twice
    POST /once       applied once a key: a repeat gets the first answer
    POST /undo       as /act, and its body's `undoes` names a key; POST /undo-once as /once
    GET  /happened?key=     200 with the first answer, or 404. It may be counted on, because asking is remembered too:
                            a writer with an older fence of the same run is refused from then on
    GET  /log        every line; GET /up

A request is applied at the end of its delay, even if the client has gone away by then; in that moment its fence is compared with the highest that
this run has shown (409, with that one in the header Outlast-Fence), the line is written and synced, and only then it is answered.

The query of a POST says what befalls it: `delay=SECONDS` (0 unless given), `gate=PATH` (it waits until that file exists), and `fault=`
    503      refused before anything is done          cut-before   the connection ends before anything is done
    500      done, and answered with 500              cut          done, and the connection ends without an answer
`faults=N` has only the first N requests of a key meet it (1 unless given).

A POST with the header X-Deadline (seconds since the epoch) is never applied after that time, however busy the machine is: so the
time-out of the client covers all that the ledger may still do.

It may be killed at any moment. Started again it reads its log; of a line that is not whole nobody has had an answer.
"""

import json
import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from outlast import fencing

UNDO = {"/undo", "/undo-once"}
ONCE = {"/once", "/undo-once"}


class RequestLog:
    """The log, and what follows from it."""

    def __init__(self, path: Path) -> None:
        self.lines: list[dict[str, Any]] = []
        self.newest: dict[str, int] = {}
        """The highest fence of each run."""
        self.first: dict[str, dict[str, Any]] = {}
        """The first applied line of each key."""
        self.lock = threading.Lock()
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._know(json.loads(line))
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        self._file.truncate(len(whole))
        self._file.seek(len(whole))

    def write(self, **line: Any) -> dict[str, Any]:
        """Durable when this returns. The lock is the caller's."""
        line = {"n": len(self.lines), "at": time.time(), **line}
        self._file.write(json.dumps(line).encode() + b"\n")
        os.fsync(self._file.fileno())
        self._know(line)
        return line

    def is_stale(self, run: str, fence: int) -> bool:
        return fence < self.newest.get(run, 0)

    def _know(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        if line["what"] != "refused":
            self.newest[line["run"]] = max(self.newest.get(line["run"], 0), line["fence"])
        if line["what"] in ("act", "undo"):
            self.first.setdefault(line["key"], line)


class Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    timeout = 60
    book: RequestLog
    arrivals: Counter[str]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        if url.path == "/up":
            self.answer(200, {"pid": os.getpid()})
        elif url.path == "/log":
            with self.book.lock:
                lines = list(self.book.lines)
            self.answer(200, lines)
        elif url.path == "/happened":
            self.happened(query["key"])
        else:
            self.answer(404, {"error": "no such path"})

    def happened(self, key: str) -> None:
        run, fence = fencing.read_headers(self.headers)
        with self.book.lock:
            if self.book.is_stale(run, fence):
                self.refuse(run, fence, key)
                return
            found = self.book.first.get(key)
            if fence > self.book.newest.get(run, 0):
                self.book.write(what="asked", key=key, run=run, fence=fence, found=bool(found))
        self.answer(200 if found else 404, {"n": found["n"], "key": key} if found else {"key": key})

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        length = int(self.headers.get("Content-Length", 0))
        text = self.rfile.read(length)
        if len(text) < length:
            self.close_connection = True  # the client died in the middle: that is no request
            return
        body = json.loads(text or b"null")
        key = self.headers.get("Idempotency-Key", "")
        try:
            run, fence = fencing.read_headers(self.headers)
        except ValueError as error:
            self.answer(400, {"error": str(error)})
            return
        if url.path not in {"/act", "/once", "/undo", "/undo-once"} or not key:
            self.answer(400, {"error": "not for this ledger"})
            return
        with self.book.lock:
            self.arrivals[key] += 1
            fault = (
                query.get("fault", "")
                if self.arrivals[key] <= int(query.get("faults", "1"))
                else ""
            )
        time.sleep(float(query.get("delay", "0")))
        while "gate" in query and not Path(query["gate"]).exists():
            time.sleep(0.005)
        if fault == "503":
            self.answer(503, {"error": "not now"})
            return
        if fault == "cut-before":
            self.cut()
            return
        with self.book.lock:
            if self.book.is_stale(run, fence):
                self.refuse(run, fence, key)
                return
            if time.time() > float(self.headers.get("X-Deadline", "inf")):
                self.answer(503, {"error": "too late"})
                return
            first = self.book.first.get(key) if url.path in ONCE else None
            what = "repeat" if first else "undo" if url.path in UNDO else "act"
            line = self.book.write(what=what, key=key, run=run, fence=fence, body=body)
        if fault == "cut":
            self.cut()
            return
        self.answer(500 if fault == "500" else 200, {"n": (first or line)["n"], "key": key})

    def refuse(self, run: str, fence: int, key: str) -> None:
        newest = self.book.newest[run]
        self.book.write(what="refused", key=key, run=run, fence=fence, newest=newest)
        self.answer(
            409, {"error": "a younger claim has been here"}, {fencing.FENCE_HEADER: str(newest)}
        )

    def answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(body).encode()
        try:
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(text)),
                **(headers or {}),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            self.close_connection = True  # the client has gone away

    def cut(self) -> None:
        """The connection ends as at a crash: with a reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.wfile.close()
        self.connection.close()

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            pass

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = True  # a test holds the port while the ledger is down
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(
            sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1], OSError
        ):
            super().handle_error(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        try:
            super().shutdown_request(request)
        except OSError:
            pass  # it was cut


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    Handler.book, Handler.arrivals = RequestLog(folder / "ledger.log"), Counter()
    with Server(("127.0.0.1", port), Handler) as server:
        print(json.dumps({"up": server.server_port}), flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
