"""Serve what the agent calls, over HTTP on loopback: a fake model, a search tool and an outbox.

    POST /think   {"topic", "notes"}           what to look up next, and its cost
    POST /search  {"question"}                 the tool
    POST /answer  {"topic", "notes", "after"}  an answer as a stream of JSON lines: each word with
                                               its number, then null; starts after a number
    POST /send    {"to", "text", "key"}        accept a message, even if it was sent before
    POST /sent    {"key"}                      the number of the first message with this key

The services record every request. Two gates hold a reply until the demo has sent its signal, so
that the signal arrives in the middle.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from outlast.tools.demo.topics import KILL_AFTER, KILLED, STOPPED, TOPICS

THINK_SECONDS = 1.3
SEARCH_SECONDS = 3.5
TOKEN_SECONDS = 0.12
HOLD_SECONDS = 45.0
"""How long a gate holds at most. The agent waits longer than this."""


class Message(NamedTuple):
    to: str
    text: str
    key: str


@dataclass
class Call:
    """One request to the model."""

    path: str
    topic: str
    what: str = ""
    first: int = 0
    """Number of the first word of an answer: above 0 if the answer continues."""
    tokens: int = 0
    """What the request cost. For an answer, the number of words that were sent."""


@dataclass
class Traffic:
    """Everything that the services received."""

    calls: list[Call] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(call.tokens for call in self.calls)

    @property
    def repeated(self) -> dict[tuple[str, str, str], int]:
        """Return the requests that came more than once: steps whose body ran again."""
        counts = Counter((call.path, call.topic, call.what) for call in self.calls)
        return {call: times for call, times in counts.items() if times > 1}

    @property
    def answer_requests(self) -> list[Call]:
        """Return the requests for the answer whose worker is killed."""
        return [call for call in self.calls if (call.path, call.topic) == ("answer", KILLED)]

    @property
    def arrived(self) -> int:
        """Return how many tokens of that answer were sent before the kill."""
        return self.answer_requests[0].tokens if self.answer_requests else 0

    @property
    def kept(self) -> int:
        """Return how many of these tokens were not requested again."""
        return self.answer_requests[1].first if len(self.answer_requests) > 1 else 0


class Gate:
    """Hold the first caller until the gate is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def hold(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            self.opened.wait(HOLD_SECONDS)


class FakeServices:
    """Answer the agent's requests and record them. `pace` 2 answers twice as fast."""

    def __init__(self, pace: float = 1.0) -> None:
        self.traffic = Traffic()
        self.doing: dict[str, str] = {}
        """What the model last did for each topic, for the view."""
        self.tool_call = Gate()
        """Holds the last search of STOPPED."""
        self.stream = Gate()
        """Holds the answer of KILLED in its middle."""
        self._pace = pace
        self._lock = threading.Lock()

    @contextmanager
    def open(self) -> Iterator[str]:
        """Serve requests on a loopback port and yield the address."""
        with _Server(self) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                self.tool_call.opened.set()
                self.stream.opened.set()
                server.shutdown()
                thread.join()

    def think(self, topic: str, notes: list[str]) -> dict[str, Any]:
        call = self._begin(Call("think", topic, str(len(notes))))
        self._do(topic, "thinking", THINK_SECONDS)
        question = [*TOPICS[topic].results, ""][len(notes)]
        call.tokens = sum(len(text.split()) for text in (topic, question or "enough", *notes))
        return {"search": question, "tokens": call.tokens}

    def search(self, question: str) -> str:
        topic = next(name for name, one in TOPICS.items() if question in one.results)
        self._begin(Call("search", topic, question))
        self._do(topic, f"searching: {question}", SEARCH_SECONDS / 2)
        if topic == STOPPED and question == list(TOPICS[topic].results)[-1]:
            self.tool_call.hold()
        self._do(topic, f"searching: {question}", SEARCH_SECONDS / 2)
        return TOPICS[topic].results[question]

    def answer(self, topic: str, notes: list[str], after: str | None) -> Iterator[tuple[str, str]]:
        first = 0 if after is None else int(after) + 1
        call = self._begin(Call("answer", topic, str(len(notes)), first))
        words = TOPICS[topic].answer.split()
        for number in range(first, len(words)):
            if topic == KILLED and number == KILL_AFTER:
                self.stream.hold()
            self._do(topic, f"writing: {number} of {len(words)} tokens", TOKEN_SECONDS)
            yield words[number] + " " * (number + 1 < len(words)), str(number)
            call.tokens += 1

    def send(self, to: str, text: str, key: str) -> int:
        with self._lock:
            self.traffic.messages.append(Message(to, text, key))
            return len(self.traffic.messages)

    def sent(self, key: str) -> int | None:
        keys = [message.key for message in self.traffic.messages]
        return keys.index(key) + 1 if key in keys else None

    def _begin(self, call: Call) -> Call:
        self.traffic.calls.append(call)
        return call

    def _do(self, topic: str, what: str, seconds: float) -> None:
        self.doing[topic] = what
        time.sleep(seconds / self._pace)


class _Server(ThreadingHTTPServer):
    def __init__(self, services: FakeServices) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.paths: dict[str, Any] = {
            "/think": services.think,
            "/search": services.search,
            "/answer": services.answer,
            "/send": services.send,
            "/sent": services.sent,
        }

    def handle_error(self, *_: object) -> None:
        """Ignore errors: the demo kills clients on purpose."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self.server.paths[self.path](**body)
        self.send_response(200)
        self.end_headers()
        if isinstance(reply, Iterator):
            for word in reply:
                if has_left(self.connection):
                    return
                self.wfile.write(json.dumps(word).encode() + b"\n")
            reply = None
        self.wfile.write(json.dumps(reply).encode() + b"\n")

    def log_message(self, *_: object) -> None:
        """Log nothing: the demo prints what happens."""


def has_left(connection: socket.socket) -> bool:
    """Return whether the client closed the connection or was killed."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
