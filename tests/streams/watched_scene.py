"""A worker publishes a long answer, a viewer shows it, and any of them and the server may be killed."""

import json
import random
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from outlast.store.address import store_at
from outlast.testing import servers
from support.ports import free_port
from support.processes import Program, clean_environment
from support.waiting import wait_until

PROGRAM = Path(__file__).parent / "programs" / "watched_answer.py"
TOKENS = 2000
TOKEN = "viewer-token-0123456789"
TOKEN_ITEM = f"vera:viewer:{TOKEN}"
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


class Client:
    """What a person sees: a text, and the cursor of its last event. It survives every viewer."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor: str | None = None
        self.resets = 0
        self.end: dict | None = None

    def receive(self, event: dict) -> None:
        assert self.end is None, f"an event after the end: {event}"
        self.cursor = event["cursor"]
        if event["kind"] == "data":
            self.text += event["value"]
            check_one_answer(self.text)
        elif event["kind"] == "reset":
            self.text = ""
            self.resets += 1
        else:
            self.end = event

    @property
    def tokens(self) -> int:
        return self.text.count(" ")


def check_one_answer(text: str) -> None:
    """Fail unless every token is in its place and of the voice of the first one."""
    words = text.split(" ")[:-1]
    voice = words[0].partition("-")[0] if words else ""
    assert words[-1:] == [f"{voice}-{len(words) - 1}"][: len(words)], text[-200:]


class Scene:
    """A worker, a viewer, a client and the store's server."""

    victims = ("worker", "viewer")
    """What may be killed, besides the store's server."""

    def __init__(self, place: str, way: str, folder: Path, server: servers.Server | None) -> None:
        self.place, self.way, self.folder, self.server = place, way, folder, server
        self.client = Client()
        self._read = 0
        self.workers_started = self.servers_stopped = 0
        self.budget(0)
        self.start_worker()
        self.worker.wait_for_line("ready")
        self.start_viewer()

    def budget(self, tokens: int) -> None:
        """Let the provider send this many tokens."""
        new = self.folder / "budget.new"
        new.write_text(str(tokens))
        new.rename(self.folder / "budget")

    def start_worker(self) -> None:
        self.workers_started += 1
        env = clean_environment(
            OUTLAST_PROGRESS_INTERVAL="0.05",
            OUTLAST_PUBLISH_INTERVAL="0.02",
            OUTLAST_MAX_ATTEMPTS="100000",
            OUTLAST_DEATH_BACKOFF="0.01",
            OUTLAST_DEATH_BACKOFF_MAX="0.02",
            # A worker that is killed together with Redis is taken for dead when its lease ends. No other
            # worker is open that could take a slow one for dead.
            OUTLAST_LEASE="5",
            OUTLAST_HEARTBEAT="0.05",
        )
        words = (PROGRAM, "work", self.place, self.way, TOKENS)
        self.worker = Program.python(*words, folder=self.folder, env=env)

    def start_viewer(self) -> None:
        after = () if self.client.cursor is None else (self.client.cursor,)
        # A server takes longer to start than this, so some viewers give up.
        env = clean_environment(OUTLAST_PUBLISH_INTERVAL="0.02", OUTLAST_STORE_PATIENCE="2")
        words = (PROGRAM, "view", self.place, *after)
        self.viewer = Program.python(*words, folder=self.folder, env=env)
        self._read = 0

    def look(self) -> Client:
        """Give the client what the viewer has printed."""
        lines = self.viewer.lines
        for line in lines[self._read :]:
            self.client.receive(json.loads(line))
        self._read = len(lines)
        return self.client

    def wait_for(self, tokens: int) -> None:
        self.wait_until(lambda: self.look().tokens >= tokens)

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, and replace processes that give up while a server is away."""

        def holds() -> object:
            self.supervise()
            return condition()

        wait_until(holds, self.describe)

    def kill(self, victims: set[str]) -> None:
        if "server" in victims and self.server is not None:
            is_postgres = self.place.startswith("postgres")
            self.server.stop(signal.SIGQUIT if is_postgres else signal.SIGKILL)
            self.servers_stopped += 1
        if "worker" in victims:
            self.worker.kill()
        if "viewer" in victims:
            self.viewer.kill()
        if "server" in victims and self.server is not None:
            self.server.start()
        self.supervise()

    def supervise(self) -> None:
        """Replace each process that was killed, or that gave up because the server was away."""
        if self.has_ended(self.worker):
            self.start_worker()
        if self.has_ended(self.viewer) and self.look().end is None:
            self.start_viewer()

    def has_ended(self, program: Program) -> bool:
        """Return whether a process has ended. Fail if it gave up although no server was away."""
        if not program.has_ended:
            return False
        may_end = program.wait() == -signal.SIGKILL or self.servers_stopped or self.look().end
        assert may_end, f"it ended by itself: {program.describe()}"
        return True

    @property
    def calls(self) -> list[int]:
        """The token at which each call to the provider began."""
        lines = (self.folder / "ledger").read_text().splitlines()
        return [int(line.split()[1]) for line in lines]

    def describe(self) -> str:
        shown = f"{self.client.tokens} tokens, {self.client.resets} resets"
        return f"{shown}\n{self.worker.describe()}\n{self.viewer.describe()}"

    def close(self) -> None:
        self.worker.kill()
        self.viewer.kill()

    def play(self, kills: int, chance: random.Random) -> None:
        """Let the answer grow and kill something, again and again, until the client has it all."""
        victims = [*self.victims, *["server"] * (self.server is not None)]
        try:
            for number in range(kills):
                budget = TOKENS * (number + 1) // (kills + 1)
                self.budget(budget)
                self.wait_for(chance.randint(min(self.client.tokens, budget), budget))
                self.kill(set(chance.sample(victims, chance.randint(1, len(victims)))))
            self.budget(TOKENS)
            self.wait_until(lambda: self.look().end)
        finally:
            self.close()

    def check(self) -> None:
        """Fail unless the client has the recorded answer, and every restart was announced."""
        client, calls = self.client, self.calls
        assert client.end is not None
        assert client.tokens == TOKENS
        assert client.end["status"] == "done"
        assert client.text == client.end["result"] == recorded(self.place)
        print(f"{len(calls)} calls to the provider, {client.resets} resets")
        # A viewer is reset only when another answer begins, or when the server is another one.
        assert client.resets <= calls.count(0) + self.servers_stopped
        # Only a worker that begins again asks the provider again. A server that stops ends the step at most once.
        assert len(calls) <= self.workers_started + self.servers_stopped


class SceneOverHttp(Scene):
    """A scene whose viewer reads from a web process, and knows nothing of the store."""

    victims = ("worker", "viewer", "web")

    def __init__(self, *words: Any) -> None:
        self.port = free_port()
        self.web: Program | None = None
        super().__init__(*words)

    def start_web(self) -> None:
        env = clean_environment(
            OUTLAST_PUBLISH_INTERVAL="0.02",
            OUTLAST_STORE_PATIENCE="2",
            OUTLAST_API_TOKENS=TOKEN_ITEM,
        )
        listen = ("--listen", f"127.0.0.1:{self.port}")
        words = ("-m", "outlast", "serve", "--store", self.place, *listen)
        self.web = Program.python(*words, folder=self.folder, env=env)

    def start_viewer(self) -> None:
        if self.web is None:
            self.start_web()
        after = () if self.client.cursor is None else (self.client.cursor,)
        words = (PROGRAM.with_name("answer_reader.py"), self.port, TOKEN, *after)
        self.viewer = Program.python(*words, folder=self.folder, env=clean_environment())
        self._read = 0

    def kill(self, victims: set[str]) -> None:
        assert self.web is not None
        if "web" in victims:
            self.web.kill()
        super().kill(victims)

    def supervise(self) -> None:
        assert self.web is not None
        super().supervise()
        if self.has_ended(self.web):
            self.start_web()

    def describe(self) -> str:
        assert self.web is not None
        return f"{super().describe()}\n{self.web.describe()}"

    def close(self) -> None:
        super().close()
        if self.web is not None:
            self.web.kill()


@pytest.fixture
def own_place(request, tmp_path):
    """Yield the address of a store and its server, which the test may kill."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path}/outlast.db", None
        elif request.param == "postgres":
            server = stack.enter_context(servers.postgres_server())
            yield server.url, server
        else:
            server = stack.enter_context(servers.redis_server(None, *DURABLE))
            yield server.url, server


def recorded(place: str) -> str:
    """Return the text that the step has recorded."""
    store = store_at(place)
    store.open()
    try:
        row = store.run("run")
        assert row is not None
        assert row.value is not None
        (entry,) = [entry for entry in store.journal(row.pk) if entry.kind == "step"]
        assert entry.value == row.value
        return json.loads(row.value)
    finally:
        store.close()
