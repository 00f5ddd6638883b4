"""Stand in for a model and its search tool: HTTP, realistically slow, and it counts requests.

    POST /think   {"topic", "notes"}            what to look up next, and its cost
    POST /search  {"question"}                  the tool
    POST /answer  {"topic", "notes", "after"}   an answer as server-sent events with ids, one per
                                                word; continues after an id that it sent

It has two gates. A gate holds an answer until the demo has sent its signal, so that the signal
arrives in the middle.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from outlast.tools.demo.library import TOPICS
from outlast.tools.demo.server import Handler, serving

THINK_SECONDS = 1.3
SEARCH_SECONDS = 3.5
TOKEN_SECONDS = 0.12
HOLD_SECONDS = 45.0
"""How long a gate holds at most: less than the agent waits."""


class Gate:
    """Hold the first caller until the gate is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def hold(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            self.opened.wait(HOLD_SECONDS)


class Call(NamedTuple):
    """One request, as it came. Two equal requests are one step body that began twice."""

    path: str
    topic: str
    what: str


@dataclass
class Answer:
    """One request for an answer."""

    topic: str
    id: str
    first: int
    """Number of its first word: 0, or where it continues."""
    sent: int = 0
    """How many words it has sent."""


@dataclass
class Model:
    pace: float = 1.0
    gates: dict[tuple[str, str], Gate] = field(default_factory=dict)
    """By path and topic.

    A gate holds before the last search of a topic is answered, or in the middle of an answer.
    """
    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    used: int = 0
    """Tokens of all requests."""
    doing: dict[str, str] = field(default_factory=dict)
    """What it is doing for each topic, for the view."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def gate(self, path: str, topic: str) -> Gate:
        return self.gates.setdefault((path, topic), Gate())

    # -- requests

    def think(self, topic: str, notes: list[str]) -> dict[str, Any]:
        self._count(Call("think", topic, str(len(notes))))
        with self._busy(topic, "thinks"):
            self._take(THINK_SECONDS)
        questions = list(TOPICS[topic].finds)
        question = questions[len(notes)] if len(notes) < len(questions) else ""
        tokens = (
            len(topic.split())
            + len((question or "enough").split())
            + sum(len(n.split()) for n in notes)
        )
        with self._lock:
            self.used += tokens
        return {"search": question, "tokens": tokens}

    def search(self, question: str) -> dict[str, Any]:
        topic = next(name for name, one in TOPICS.items() if question in one.finds)
        self._count(Call("search", topic, question))
        with self._busy(topic, f"searches: {question}"):
            self._take(SEARCH_SECONDS / 2)
            if ("search", topic) in self.gates and question == list(TOPICS[topic].finds)[-1]:
                self.gates["search", topic].hold()
            self._take(SEARCH_SECONDS / 2)
        return {"text": TOPICS[topic].finds[question]}

    def asked(self, topic: str, after: str | None) -> Answer | None:
        """Begin or continue an answer. Return None if there is no such answer."""
        self._count(Call("answer", topic, ""))
        with self._lock:
            id, _, last = (after or f"{topic}-{len(self.answers) + 1}:-1").rpartition(":")
            if after is not None and all(one.id != id for one in self.answers):
                return None
            self.answers.append(Answer(topic, id, int(last) + 1))
            return self.answers[-1]

    def words(self, answer: Answer) -> Iterator[tuple[str, str]]:
        """Yield the remaining words, with the id of each event."""
        words = TOPICS[answer.topic].answer.split()
        gate = self.gates.get(("answer", answer.topic))
        for number in range(answer.first, len(words)):
            with self._busy(answer.topic, f"writes: {number} of {len(words)} tokens"):
                if gate is not None and number == middle_of(answer.topic):
                    gate.hold()
                self._take(TOKEN_SECONDS)
                yield words[number] + " " * (number + 1 < len(words)), f"{answer.id}:{number}"
            with self._lock:
                answer.sent += 1
                self.used += 1

    # -- internals

    def _take(self, seconds: float) -> None:
        time.sleep(seconds / self.pace)

    def _count(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)

    @contextmanager
    def _busy(self, topic: str, what: str) -> Iterator[None]:
        self.doing[topic] = what
        try:
            yield
        finally:
            self.doing.pop(topic, None)

    @contextmanager
    def open(self) -> Iterator[str]:
        """Serve requests and yield the address."""
        model = self

        class ModelHandler(Handler):
            def do_POST(self) -> None:  # noqa: N802 - the standard library's name
                said = self.asked()
                if self.path == "/think":
                    self.answer(model.think(said["topic"], said["notes"]))
                elif self.path == "/search":
                    self.answer(model.search(said["question"]))
                else:
                    self.stream(model.asked(said["topic"], said["after"]))

            def stream(self, answer: Answer | None) -> None:
                if answer is None:
                    self.send_error(404)
                    return
                self.begin("text/event-stream")
                for word, id in model.words(answer):
                    if has_left(self.connection):
                        return
                    self.wfile.write(f"id: {id}\ndata: {json.dumps(word)}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")

        with serving(ModelHandler) as address:
            try:
                yield address
            finally:
                for gate in self.gates.values():
                    gate.opened.set()


def length_of(topic: str) -> int:
    """Return the number of tokens in its answer."""
    return len(TOPICS[topic].answer.split())


def middle_of(topic: str) -> int:
    """Return where an answer is held: after three fifths."""
    return length_of(topic) * 3 // 5


def has_left(connection: socket.socket) -> bool:
    """Return whether the client closed the connection or was killed."""
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True
