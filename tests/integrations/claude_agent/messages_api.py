"""A Messages API on loopback that answers by a script, for the SDK's program and its stand-in."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

Script = Callable[[list[dict]], list[dict]]
"""Returns the blocks of the answer to these messages."""
USAGE = {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
_numbers = count(1)


def text(text: str) -> dict:
    return {"type": "text", "text": text}


def call(id: str, name: str, **arguments: Any) -> dict:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def blocks(messages: list[dict], kind: str) -> list[dict]:
    contents = [one["content"] for one in messages if isinstance(one["content"], list)]
    return [block for content in contents for block in content if block["type"] == kind]


def check_pairs(messages: list[dict]) -> None:
    """Fail if a history has a tool call without its result, or a result twice."""
    calls = [block["id"] for block in blocks(messages, "tool_use")]
    results = [block["tool_use_id"] for block in blocks(messages, "tool_result")]
    assert sorted(calls) == sorted(results), f"calls {calls}, results {results}"
    assert len(set(calls)) == len(calls), calls


class MessagesApi:
    """The server. Use it as a context manager; `url` is its address."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.errors: list[Exception] = []
        api = self

        class Handler(_Handler):
            def answer(self, messages: list[dict]) -> list[dict]:
                try:
                    return api.script(messages)
                except Exception as error:
                    api.errors.append(error)
                    raise

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> "MessagesApi":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, messages: list[dict]) -> list[dict]:
        raise NotImplementedError

    def do_HEAD(self) -> None:
        self._send(b"", "application/json")

    def do_GET(self) -> None:
        self._send(b"{}", "application/json")

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.path.partition("?")[0].endswith("/messages"):
            self._send(b'{"input_tokens": 10}', "application/json")
            return
        # The program asks for titles without tools.
        answer = self.answer(request["messages"]) if request.get("tools") else [text("title")]
        message = _message(request["model"], answer)
        if request.get("stream"):
            self._send(_events(message), "text/event-stream")
        else:
            self._send(json.dumps(message).encode(), "application/json")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


def _message(model: str, content: list[dict]) -> dict:
    asks = any(block["type"] == "tool_use" for block in content)
    return {
        "id": f"msg_{next(_numbers)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if asks else "end_turn",
        "stop_sequence": None,
        "usage": {**USAGE, "output_tokens": 7},
    }


def _events(message: dict) -> bytes:
    """Return a message as the events of a stream."""
    start = {**message, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    events: list[dict] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            begun, delta = (
                {"type": "text", "text": ""},
                {"type": "text_delta", "text": block["text"]},
            )
        else:
            begun = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": index, "content_block": begun},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    lines = (f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    return "".join(lines).encode()
