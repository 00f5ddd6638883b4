"""A small streaming model server, as a process of its own: server-sent events over HTTP, a token each.

python examples/model_server.py 8765           # and, if you like, how many seconds it takes for a token

    POST /generate  {"prompt": ..., "prefill": ""}     goes on from a text
    POST /answers   {"prompt": ..., "cursor": null}    goes on from the id of an event, if it still has the answer

Like a model it answers otherwise each time: every answer has a voice of its own, which its words carry. Like a server it forgets its
answers when it dies. It goes slowly, so that there is time to kill it: kill -9 it, or whoever listens.
"""

import json
import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS = 120
SECONDS_A_TOKEN = float(sys.argv[2]) if len(sys.argv) > 2 else 0.05

voices: dict[str, str] = {}
"""The answers that this process has begun: their voice by their id."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(json.dumps({"path": self.path, **asked}), flush=True)
        if self.path == "/generate":
            words = asked["prefill"].split()
            answer, voice, first = (
                "",
                words[0].split("-")[0] if words else secrets.token_hex(2),
                len(words),
            )
        else:
            answer, _, last = (asked["cursor"] or f"{secrets.token_hex(4)}:-1").partition(":")
            voice = voices.get(answer, "") if asked["cursor"] else secrets.token_hex(2)
            if not voice:
                self.send_error(404, "no such answer: this server has not begun it")
                return
            voices[answer], first = voice, int(last) + 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(first, TOKENS):
            time.sleep(SECONDS_A_TOKEN)
            self.event({"token": f"{voice}-{number} ", "cursor": f"{answer}:{number}"})
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
        """Whoever listened is gone."""


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8765), Handler)
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()
