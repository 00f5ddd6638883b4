"""Kill the processes of the streaming example: the agent, the model server, or both."""

import itertools
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from outlast.store.address import store_at
from support import processes
from support.ports import free_port
from support.processes import clean_environment
from support.seeds import seeded_random
from support.snapshots import read_snapshot
from support.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = Path(__file__).parent / "programs" / "gated_model_server.py"
TOKENS = 120
GATE = 40
"""Tokens that a server sends before it waits for the test, so no answer ends too early."""
WAYS = ["restart", "prefill", "cursor"]
KILLS = min(40, int(os.environ.get("OUTLAST_TEST_KILLS", "3")))
WORD = re.compile(r"([0-9a-f]+)-(\d+) ")


def check_one_answer(text: str, words: int | None = None) -> str:
    """Fail unless every word is in its place and of the same voice. Return the voice."""
    found = WORD.findall(text)
    assert "".join(f"{voice}-{number} " for voice, number in found) == text, text
    assert len({voice for voice, _ in found}) <= 1, f"two answers in one: {text}"
    assert [int(number) for _, number in found] == list(range(len(found))), text
    assert words is None or len(found) == words, text
    return found[0][0] if found else ""


class Program(processes.Program):
    """A process that prints JSON values, one per line."""

    def __init__(self, *command: object, folder: Path, **env: str) -> None:
        words = [sys.executable, "-W", "error", *command]
        super().__init__(words, folder, env=clean_environment(PYTHONFAULTHANDLER="1", **env))

    @property
    def messages(self) -> list[dict]:
        return [json.loads(line) for line in self.lines]

    def end(self, number: int = signal.SIGKILL) -> int:
        self.send_signal(number)
        return self.wait()


class Stage:
    """A model server and an agent, which a test may start again and again."""

    def __init__(self, folder: Path, by: str) -> None:
        self.folder, self.by = folder, by
        self.seconds_per_token = 0.002
        self.servers: list[Program] = []
        self.agents: list[Program] = []
        while True:
            self.port = free_port()
            self.launch_server()
            wait_until(lambda: self.server.messages or self.server.has_ended, self.server.describe)
            if "Address already in use" not in self.server.errors:
                break

    def launch_server(self) -> None:
        self.server = Program(SERVER, self.port, GATE, self.seconds_per_token, folder=self.folder)
        self.servers.append(self.server)

    def start_server(self) -> None:
        self.launch_server()
        self.server.wait_until(lambda: self.server.messages)

    def open_gate(self) -> None:
        (self.folder / "go").touch()

    def start_agent(self, **env: str) -> None:
        env = {
            "OUTLAST_PROGRESS_INTERVAL": "0.1",
            "OUTLAST_MAX_ATTEMPTS": "1000",  # the run is not to blame for its deaths
            "OUTLAST_DEATH_BACKOFF": "0.01",
            "MODEL_URL": f"http://127.0.0.1:{self.port}",
            **env,
        }
        self.agent = Program(EXAMPLES / "stream.py", self.by, folder=self.folder, **env)
        self.agents.append(self.agent)

    @property
    def asked(self) -> list[dict]:
        """Every request that reached a server."""
        return [line for server in self.servers for line in server.messages if "path" in line]

    def shown(self) -> list[str]:
        """Every state of the screen."""
        states = [""]
        for line in itertools.chain.from_iterable(agent.messages for agent in self.agents):
            if "set" in line:
                states.append(line["set"])
            elif "append" in line:
                states.append(states[-1] + line["append"])
        return states

    def until_appended(self, count: int) -> None:
        self.agent.wait_until(
            lambda: sum("append" in line for line in self.agent.messages) >= count
        )

    def saved(self) -> str:
        """Return what the store has of the answer."""
        store = store_at(f"sqlite:///{self.folder / 'outlast.db'}")
        store.open()
        try:
            row = store.run(f"answer-{self.by}")
            texts = list(store.progress(row.pk).values()) if row else []
        finally:
            store.close()
        return json.loads(texts[0])["str"] if texts else ""

    def claims(self) -> int:
        """Return how many processes have executed the run so far."""
        return read_snapshot(self.folder / "outlast.db").runs[f"answer-{self.by}"]["lives"]

    def finish(self) -> str:
        """Wait until the agent ends, check all that was ever shown, and return the answer."""
        assert self.agent.wait() == 0, self.agent.errors
        answer = self.agent.messages[-1]["answer"]
        check_one_answer(answer, TOKENS)
        for state in self.shown():
            check_one_answer(state)
        assert self.shown()[-1] in (answer, "")
        return answer

    def close(self) -> None:
        for program in self.servers + self.agents:
            program.kill()


@pytest.fixture
def stage(tmp_path, request):
    stage = Stage(tmp_path, request.param)
    yield stage
    stage.close()


def each_way(*ways: str):
    """Run a test with these ways to resume. `make stores` runs it with all of them."""
    chosen = [way if way in ways else pytest.param(way, marks=pytest.mark.extended) for way in WAYS]
    return pytest.mark.parametrize("stage", chosen, indirect=True)


def check_agent_died(stage: Stage, before: str) -> None:
    """Check how the second agent began after the first had shown `before`."""
    begun = stage.agent.messages[0]["set"]
    if stage.by == "restart":
        assert begun == ""
        assert "starts clean" in stage.agent.errors
    else:
        assert len(begun) > 0
        assert before.startswith(begun), "it continues the same answer"
        assert "resumes" in stage.agent.errors


@each_way(*WAYS)
def test_agent_killed_in_the_middle_continues_the_answer(stage):
    stage.start_agent()
    stage.until_appended(30)
    if stage.by != "restart":
        stage.agent.wait_until(stage.saved)
    stage.agent.end()
    before, saved = stage.shown()[-1], stage.saved()
    stage.open_gate()
    stage.start_agent()
    answer = stage.finish()
    check_agent_died(stage, before)
    if stage.by == "restart":
        assert check_one_answer(answer) != check_one_answer(before)
    else:
        assert stage.agent.messages[0]["set"] == saved, "it begins with what was saved last"
        assert check_one_answer(answer) == check_one_answer(before)
    assert len(stage.asked) == 2
    question = stage.asked[-1]
    assert question.get("prefill") == {"restart": "", "prefill": saved}.get(stage.by)


@each_way("prefill", "cursor")
def test_agent_retries_when_the_server_is_killed_and_comes_back(stage):
    """A server that has lost the answer cannot continue it from a cursor."""
    stage.start_agent()
    stage.until_appended(30)
    stage.server.end()
    stage.open_gate()
    stage.start_server()
    answer = stage.finish()
    sets = [line["set"] for line in stage.agent.messages if "set" in line]
    if stage.by == "prefill":
        assert len(WORD.findall(sets[-1])) >= 30, "nothing that had arrived is lost"
    else:
        assert sets[-1] == ""
        assert "starts clean" in stage.agent.errors
    first = check_one_answer(next(state for state in stage.shown() if state))
    assert (check_one_answer(answer) == first) == (stage.by == "prefill")


@each_way("prefill")
def test_agent_that_comes_back_before_its_server_finishes_the_answer(stage):
    stage.start_agent()
    stage.until_appended(20)
    if stage.by == "prefill":
        stage.agent.wait_until(stage.saved)
    stage.agent.end()
    stage.server.end()
    before = stage.shown()[-1]
    stage.open_gate()
    stage.start_agent()
    stage.agent.wait_until(lambda: stage.claims() == 2)
    stage.start_server()
    answer = stage.finish()
    assert (check_one_answer(answer) == check_one_answer(before)) == (stage.by == "prefill")


@pytest.mark.parametrize("stage", ["prefill", "cursor"], indirect=True)
def test_agent_that_gets_sigterm_loses_no_token(stage):
    """What has arrived is saved, whatever the interval. The step is asked to stop after 1 s of its grace."""
    reserves = {"OUTLAST_CHECKPOINT_RESERVE": "29.5", "OUTLAST_EXIT_RESERVE": "29.4"}
    stage.start_agent(OUTLAST_PROGRESS_INTERVAL="1000", OUTLAST_GRACE="60", **reserves)
    stage.until_appended(5)
    assert stage.agent.end(signal.SIGTERM) == 75, stage.agent.errors
    assert stage.agent.errors.strip().splitlines()[0] == "starts"
    before, saved = stage.shown()[-1], stage.saved()
    assert saved == before, "everything that was shown is saved, and nothing else"
    stage.open_gate()
    stage.start_agent()
    stage.until_appended(1)
    assert stage.agent.messages[0]["set"] == before


@each_way("cursor")
def test_agent_that_had_ended_does_not_ask_again(stage):
    stage.open_gate()
    stage.start_agent()
    answer = stage.finish()
    stage.start_agent()
    assert stage.finish() == answer
    assert len(stage.asked) == 1


@pytest.mark.timeout(600 + KILLS * 20)
@each_way("cursor")
def test_screen_shows_one_answer_when_processes_are_killed_at_random(stage):
    rng = seeded_random(f"streams {stage.by}")
    stage.server.kill()
    stage.seconds_per_token = 0.01  # an answer takes longer than most processes live
    stage.start_server()
    stage.open_gate()
    stage.start_agent()
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.1, 1.2))  # a random moment
        victim = rng.choice(["agent", "server", "both"])
        if victim != "server":
            stage.agent.kill()
        if victim != "agent":
            stage.server.kill()
            time.sleep(rng.uniform(0, 0.3))  # a random time without a server
            stage.start_server()
        if victim != "server":
            stage.start_agent()
    stage.finish()
