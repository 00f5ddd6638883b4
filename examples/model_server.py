"""Serve a small streaming model: server-sent events over HTTP, one token per event.

python examples/model_server.py 8765           # optional second argument: seconds per token

    POST /generate  {"prompt": ..., "prefill": ""}     continues from a text
    POST /answers   {"prompt": ..., "cursor": null}    continues after an event's id, if it still
                                                       has the answer

Like a model, it answers differently each time: every answer has its own prefix, which each word
carries. Like a server, it forgets its answers when it dies. It is slow, so that you have time to
kill -9 it or its client.
"""

import json
import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS = 120
SECONDS_PER_TOKEN = float(sys.argv[2]) if len(sys.argv) > 2 else 0.05

prefixes: dict[str, str] = {}
"""The prefix of each answer that this process has started, by the answer's id."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(json.dumps({"path": self.path, **asked}), flush=True)
        if self.path == "/generate":
            words = asked["prefill"].split()
            answer = ""
            prefix = words[0].split("-")[0] if words else secrets.token_hex(2)
            first = len(words)
        else:
            answer, _, last = (asked["cursor"] or f"{secrets.token_hex(4)}:-1").partition(":")
            prefix = prefixes.get(answer, "") if asked["cursor"] else secrets.token_hex(2)
            if not prefix:
                self.send_error(404, "no such answer: this server did not start it")
                return
            prefixes[answer], first = prefix, int(last) + 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(first, TOKENS):
            time.sleep(SECONDS_PER_TOKEN)
            self.event({"token": f"{prefix}-{number} ", "cursor": f"{answer}:{number}"})
        self.event({"done": True})
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data: dict[str, object]) -> None:
        event = f"data: {json.dumps(data)}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore clients that have disconnected."""


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8765), Handler)
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()
