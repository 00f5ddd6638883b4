"""Share HTTP code between the demo's two servers: a loopback port, in threads of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Handle JSON requests with JSON answers."""

    def asked(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return said

    def answer(self, value: Any) -> None:
        text = json.dumps(value).encode()
        self.begin("application/json", str(len(text)))
        self.wfile.write(text)

    def begin(self, kind: str, length: str | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", length)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing: the demo's own lines say what happens."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Ignore errors: killing the client is the point of the demo."""


@contextmanager
def serving(handler: type[Handler]) -> Iterator[str]:
    """Serve requests and yield the address."""
    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
