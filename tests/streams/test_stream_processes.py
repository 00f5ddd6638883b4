"""The example, with real processes and real SIGKILLs: of the agent, of the model's server, of both at any moment."""

import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from outlast.store.address import store_at
from spawned import spawn

EXAMPLES = Path(__file__).parents[2] / "examples"
TOKENS = 120
WAYS = ["restart", "prefill", "cursor"]
PATIENCE = 90.0
CHAOS = min(40, int(os.environ.get("OUTLAST_TEST_KILLS", "8")))
SECONDS_A_TOKEN = 0.02
WORD = re.compile(r"([0-9a-f]+)-(\d+) ")


def until(true, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.005)


def check_one_answer(text: str, words: int | None = None) -> str:
    """One voice, every word in its place: the voice."""
    found = WORD.findall(text)
    assert "".join(f"{voice}-{number} " for voice, number in found) == text, text
    assert len({voice for voice, _ in found}) <= 1, f"two answers in one: {text}"
    assert [int(number) for _, number in found] == list(range(len(found))), text
    assert words is None or len(found) == words, text
    return found[0][0] if found else ""


def free_port() -> int:
    """Not one that the kernel gives to outgoing connections: while the server is dead nobody else must get it."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


class Program:
    """A process whose output is read line by line."""

    def __init__(self, *command: object, folder: Path, **env: str) -> None:
        self.lines: list[dict] = []
        self.errors = (folder / f"errors-{time.monotonic_ns()}").open("w+")
        self.process = spawn(
            [sys.executable, "-W", "error", *command],
            cwd=folder, env={**os.environ, "PYTHONFAULTHANDLER": "1", **env}, stdout=subprocess.PIPE, stderr=self.errors,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.endswith("\n"):  # the last one may be cut by a SIGKILL
                self.lines.append(json.loads(line))

    def end(self, number: int = signal.SIGKILL) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # says where every thread is
            self.process.wait()
            raise AssertionError(f"it did not end: {self.said}\n{self.lines[-3:]}") from None
        self._reader.join(PATIENCE)
        self.process.stdout.close()
        return code

    @property
    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.end()
        self.errors.close()


class Stage:
    """A model's server and an agent, each started again as often as the test likes. `screen` is what a browser shows."""

    def __init__(self, folder: Path, by: str) -> None:
        self.folder, self.by = folder, by
        self.port = free_port()
        self.servers: list[Program] = []
        self.agents: list[Program] = []
        self.start_server()

    def start_server(self, seconds_a_token: float = SECONDS_A_TOKEN) -> None:
        self.server = Program(EXAMPLES / "model_server.py", self.port, seconds_a_token, folder=self.folder)
        self.servers.append(self.server)
        until(lambda: self.server.lines or self.server.process.poll() is not None, "a server")
        assert self.server.lines, self.server.said

    def start_agent(self, **env: str) -> None:
        env = {
            "OUTLAST_PROGRESS_INTERVAL": "0.1",
            "OUTLAST_MAX_ATTEMPTS": "1000",  # it is no fault of the run's that it dies so often
            "OUTLAST_DEATH_BACKOFF": "0.01",
            "MODEL_URL": f"http://127.0.0.1:{self.port}",
            **env,
        }
        self.agent = Program(EXAMPLES / "stream.py", self.by, folder=self.folder, **env)
        self.agents.append(self.agent)

    @property
    def asked(self) -> list[dict]:
        """Every question that reached a server."""
        return [line for server in self.servers for line in server.lines if "path" in line]

    def shown(self, since: int = 0) -> list[str]:
        """Every state of the screen, from the `since`th agent on."""
        states = [""]
        for line in itertools.chain.from_iterable(agent.lines for agent in self.agents[since:]):
            if "set" in line:
                states.append(line["set"])
            elif "append" in line:
                states.append(states[-1] + line["append"])
        return states

    def appended(self) -> int:
        return sum("append" in line for line in self.agent.lines)

    def until_appended(self, count: int) -> None:
        until(lambda: self.appended() >= count or self.agent.process.poll() is not None, f"{count} tokens")
        assert self.agent.process.poll() is None, self.agent.said

    def saved(self) -> str:
        """What is in the store of the answer."""
        store = store_at(f"sqlite:///{self.folder / 'outlast.db'}")
        store.open()
        try:
            row = store.run(f"answer-{self.by}")
            texts = list(store.progress(row.pk).values()) if row else []
        finally:
            store.close()
        return json.loads(texts[0])["str"] if texts else ""

    def finish(self) -> str:
        """The agent comes to its end: what it answered, after a look at all that was ever shown."""
        code = self.agent.wait()
        assert code == 0, self.agent.said
        answer = self.agent.lines[-1]["answer"]
        check_one_answer(answer, TOKENS)
        for state in self.shown():
            check_one_answer(state)
        assert self.shown()[-1] in (answer, "")
        return answer

    def close(self) -> None:
        for program in self.servers + self.agents:
            program.close()


@pytest.fixture
def stage(tmp_path, request):
    stage = Stage(tmp_path, request.param)
    yield stage
    stage.close()


def each_way(ways=WAYS):
    return pytest.mark.parametrize("stage", ways, indirect=True)


def check_agent_died(stage: Stage, before: str) -> None:
    """How the second agent began, after the first had shown `before`."""
    begun = stage.agent.lines[0]["set"]
    if stage.by == "restart":
        assert begun == ""
        assert "starts clean" in stage.agent.said
    else:
        assert len(begun) > 0
        assert before.startswith(begun), "of the same answer"
        assert "goes on" in stage.agent.said


@each_way()
def test_the_agent_is_killed_in_the_middle(stage):
    stage.start_agent()
    stage.until_appended(30)
    stage.agent.end()
    before, saved = stage.shown()[-1], stage.saved()
    stage.start_agent()
    answer = stage.finish()
    check_agent_died(stage, before)
    if stage.by == "restart":
        assert check_one_answer(answer) != check_one_answer(before)
    else:
        assert stage.agent.lines[0]["set"] == saved, "what was written last"
        assert check_one_answer(answer) == check_one_answer(before)
        assert saved
    assert len(stage.asked) == 2
    question = stage.asked[-1]
    assert question.get("prefill") == {"restart": "", "prefill": saved}.get(stage.by)


@each_way()
def test_the_server_is_killed_in_the_middle_and_comes_back(stage):
    """The agent lives on, and its step is tried again. A server that has lost the answer cannot go on from a cursor."""
    stage.start_agent()
    stage.until_appended(30)
    stage.server.end()
    time.sleep(0.3)  # it is tried again in vain
    assert stage.agent.process.poll() is None
    stage.start_server()
    answer = stage.finish()
    sets = [line["set"] for line in stage.agent.lines if "set" in line]
    if stage.by == "prefill":
        assert len(WORD.findall(sets[-1])) >= 30, "all that had arrived: nothing of it was lost"
    else:
        assert sets[-1] == ""
        assert "starts clean" in stage.agent.said
    first = check_one_answer(next(state for state in stage.shown() if state))
    assert (check_one_answer(answer) == first) == (stage.by == "prefill")


@each_way()
def test_both_are_killed(stage):
    """The agent comes back first, and finds nobody."""
    stage.start_agent()
    stage.until_appended(20)
    stage.agent.end()
    stage.server.end()
    before = stage.shown()[-1]
    stage.start_agent()
    time.sleep(0.3)
    stage.start_server()
    answer = stage.finish()
    assert (check_one_answer(answer) == check_one_answer(before)) == (stage.by == "prefill")


@each_way(["prefill", "cursor"])
def test_an_agent_that_is_told_to_end_loses_not_one_token(stage):
    """SIGTERM: what has arrived is written, whatever the interval."""
    stage.server.end()
    stage.start_server(0.1)  # so that the answer does not end before the agent is told to stop
    stage.start_agent(OUTLAST_PROGRESS_INTERVAL="1000", OUTLAST_GRACE="10")
    stage.until_appended(5)
    # 75, unless the machine is so busy that the interpreter does not come to its own end before grace does.
    assert stage.agent.end(signal.SIGTERM) in (75, -signal.SIGALRM), stage.agent.said
    assert stage.agent.said.strip().splitlines()[0] == "starts"
    before, saved = stage.shown()[-1], stage.saved()
    assert saved == before, "all that was shown, and nothing is shown that was not saved"
    stage.start_agent()
    stage.until_appended(1)
    assert stage.agent.lines[0]["set"] == before


@each_way()
def test_an_agent_that_had_ended_does_not_ask_again(stage):
    stage.start_agent()
    answer = stage.finish()
    stage.start_agent()
    assert stage.finish() == answer
    assert len(stage.asked) == 1


@each_way()
def test_kills_at_any_moment(stage):
    """Of either, or both. Whatever the screen showed was the beginning of one answer, at every moment."""
    seed = os.environ.get("OUTLAST_TEST_KILL_SEED") or str(time.time_ns())
    print("OUTLAST_TEST_KILL_SEED", seed)
    chance = random.Random(seed)
    stage.start_agent()
    for _ in range(CHAOS):
        time.sleep(chance.uniform(0.1, 1.2))
        victim = chance.choice(["agent", "server", "both"])
        if victim != "server":
            stage.agent.end()
        if victim != "agent":
            stage.server.end()
            time.sleep(chance.uniform(0, 0.3))
            stage.start_server()
        if victim != "server":
            stage.start_agent()
    stage.finish()
