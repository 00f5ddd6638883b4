"""The examples that are several processes: replicas, workers, a web server, consumers. One of them is ended in the middle; the rest carry on."""

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from example_tools import PYTHON, ExampleProcess, Stage

from outlast.store.address import store_at
from support.stores import a_place
from support.waiting import WAIT_SECONDS, wait_until

SIGKILL, SIGTERM = signal.SIGKILL, signal.SIGTERM
either_signal = pytest.mark.parametrize("number", [SIGKILL, SIGTERM], ids=["kill", "term"])


def counted(processes: list[ExampleProcess], word: str) -> Counter[str]:
    """What follows the pid and this word, in all processes."""
    return Counter(
        line.partition(f" {word} ")[2]
        for process in processes
        for line in process.like(rf"^\d+ {word} ")
    )


# --- chat.py ---


def turns(store: str, user: str) -> list[str]:
    opened = store_at(store)
    opened.open()
    try:
        return [json.loads(item)["text"] for item in opened.items(f"chat:{user}", "turns")]
    finally:
        opened.close()


def has_saved(place: str, run: str) -> bool:
    """Return whether a part of the answer is in the store, or the run is over."""
    store = store_at(place)
    store.open()
    try:
        row = store.run(run)
        return bool(row.ended or store.progress(row.pk))
    finally:
        store.close()


@pytest.fixture(params=[("postgres", SIGKILL), ("sqlite", SIGTERM)], ids=["kill", "term"])
def chat(request, tmp_path):
    """Where it remembers, and how its replicas end."""
    kind, number = request.param
    with a_place(request, kind, tmp_path) as address:
        yield address, number


def test_chat_resumes_its_answer_and_remembers_after_a_restart(stage, chat):
    place, number = chat
    stage.env["OUTLAST_STORE"] = place
    replicas = [stage.start("chat.py", "serve") for _ in range(2)]
    for replica in replicas:
        replica.until("serves")

    def ask(*words: str) -> str:
        (line,) = stage.said(stage.start("chat.py", "say", *words))
        return line

    said = ["my name is Ada", "Hello Ada, this is turn 1.", "what is my name?"]
    said.append("As far as I remember, your name is Ada.")
    assert ask("ada", said[0]) == said[1]
    asked = stage.start("chat.py", "say", "ada", said[2], "message-2")
    wait_until(
        lambda: counted(replicas, "thinks about:")[said[2]] or asked.has_ended, asked.describe
    )
    thinker = next(one for one in replicas if one.like(f"thinks about: {said[2]}"))
    thinker.until("says: your")
    if number == SIGKILL:
        wait_until(lambda: has_saved(place, "message-2"), thinker.describe)
    assert thinker.end(number) == -number
    assert stage.said(asked) == [said[3]]
    assert turns(place, "ada") == said, "no turn twice"
    words = counted(replicas, "says:").total() - len(said[1].split())
    heard = thinker.lines[
        thinker.lines.index(f"{thinker.process.pid} thinks about: {said[2]}") + 1 :
    ]
    if number == SIGTERM:
        assert words == len(heard) == len(said[3].split()), "a drain lets the answer end"
    else:
        assert words < len(heard) + len(said[3].split()), "it went on from what was saved"
    for replica in replicas:
        replica.end(number)

    replicas = [stage.start("chat.py", "serve")]
    assert ask("ada", "what did I say first?") == "The first thing you said was: my name is Ada"
    assert ask("ada", said[2], "message-2") == said[3], "the same message is the same run"
    assert ask("bob", "what is my name?") == "You have not told me."
    assert counted(replicas, "thinks about:") == {"what did I say first?": 1, "what is my name?": 1}
    assert turns(place, "ada")[len(said) :] == [
        "what did I say first?", "The first thing you said was: my name is Ada",
    ]  # fmt: skip


# --- fleet.py ---

REPORTS = 12
SENT = {f"streets of city-{n} and bridges of city-{n}" for n in range(1, REPORTS + 1)}


@pytest.fixture
def fleet(stage, request, tmp_path):
    with a_place(request, "postgres", tmp_path) as address:
        stage.env |= {"OUTLAST_STORE": address, "OUTLAST_EFFECT_MARGIN": "0.5"}
        yield stage
        stage.close()


def start_worker(stage: Stage) -> ExampleProcess:
    return stage.outlast("worker", stage.examples / "fleet.py", "--concurrency", 4)


def start_workers(stage: Stage) -> list[ExampleProcess]:
    """Two who work already: of what is submitted then each has its part."""
    workers = [start_worker(stage) for _ in range(2)]
    wait_until_they_work(workers)
    return workers


def wait_until_they_work(workers: list[ExampleProcess]) -> None:
    for one in workers:
        wait_until(lambda one=one: "working" in one.errors or one.has_ended, one.describe)
        assert "working" in one.errors


def assert_all_sent_once(stage: Stage, submitter: ExampleProcess) -> None:
    assert stage.said(submitter) == [
        f"submitted {REPORTS}",
        *(f"sent: streets of city-{n} and bridges of city-{n}" for n in range(1, REPORTS + 1)),
    ]
    assert Counter(line.partition(" ")[2] for line in stage.ledger("mails.txt")) == dict.fromkeys(
        SENT, 1
    )


def test_fleet_continues_after_a_worker_is_killed(fleet):
    workers = start_workers(fleet)
    submitter = fleet.start("fleet.py", REPORTS)
    victim = wait_until(lambda: next((one for one in workers if one.like(" mails ")), None))
    other = next(one for one in workers if one is not victim)
    victim.end()
    assert_all_sent_once(fleet, submitter)
    again = sum(counted(workers, word).total() - REPORTS for word in ("collects", "writes"))
    assert 0 <= again <= 4, "what was under way in its four slots"
    assert other.end(SIGTERM) == 0
    assert_all_sent_once(fleet, fleet.start("fleet.py", REPORTS))


def test_a_rolling_restart_of_the_fleet_does_nothing_twice(fleet):
    workers = start_workers(fleet)
    submitter = fleet.start("fleet.py", REPORTS)
    for old in tuple(workers):
        wait_until(lambda old=old: old.like(" writes ") or submitter.has_ended, old.describe)
        workers.append(start_worker(fleet))
        assert old.end(SIGTERM) == 0, old.errors
    assert_all_sent_once(fleet, submitter)
    assert counted(workers, "mails") == dict.fromkeys(SENT, 1)
    assert counted(workers, "collects").total() == counted(workers, "writes").total() == REPORTS
    wait_until_they_work(workers)
    assert [worker.end(SIGTERM) for worker in workers] == [0, 0, 0, 0]


# --- service.py ---

QUESTIONS = [f"tides-{n}" for n in range(4)]


class Service:
    """The example under a real server, and clients that wait for its answers."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.url, self.ready_url = stage, "", ""
        self.client = httpx.Client(
            timeout=WAIT_SECONDS, trust_env=False, headers={"Connection": "close"}
        )

    def start(self) -> ExampleProcess:
        port, ready = self.stage.hold_port(), self.stage.hold_port()
        self.url, self.ready_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{ready}/ready"
        command = (
            *PYTHON,
            "-m",
            "uvicorn",
            "--app-dir",
            self.stage.examples,
            "service:web",
            "--port",
            port,
        )
        process = self.stage.execute(*command, OUTLAST_HTTP=f"127.0.0.1:{ready}")
        wait_until(
            lambda: "Uvicorn running" in process.errors and self.is_ready(), process.describe
        )
        return process

    def is_ready(self, path: str = "") -> bool:
        with suppress(httpx.TransportError):
            return self.client.get(path or self.ready_url).status_code == 200
        return False

    def ask(self, question: str, id: str | None = None) -> tuple[int, object]:
        """The status (0: the connection was cut), and what was answered."""
        try:
            answer = self.client.put(
                f"{self.url}/answers/{id or question}", params={"question": question}
            )
        except httpx.TransportError:
            return 0, None
        return answer.status_code, answer.json().get("answer")

    def ask_all(self) -> tuple[list[threading.Thread], dict[str, tuple[int, object]]]:
        """One request for each question, all of them under way."""
        answers: dict[str, tuple[int, object]] = {}
        threads = [
            threading.Thread(
                target=lambda q=question: answers.update({q: self.ask(q)}), daemon=True
            )
            for question in QUESTIONS
        ]
        for thread in threads:
            thread.start()
        return threads, answers


ANSWERS = {
    question: (200, [f"{question}, part {n}" for n in range(1, 5)]) for question in QUESTIONS
}


@pytest.fixture
def service(stage) -> Iterator[Service]:
    service = Service(stage)
    with service.client:
        yield service


@either_signal
def test_service_ended_under_load_answers_everything_once(service, number):
    first = service.start()
    threads, answers = service.ask_all()
    first.until(r"asks .* 2$", len(QUESTIONS))
    first.process.send_signal(number)
    if number == SIGTERM:
        assert_says_not_ready(service, first)
    assert first.wait() == -number, first.errors
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert {status for status, _ in answers.values()} <= (
        {200, 503} if number == SIGTERM else {0, 200}
    )

    second = service.start()
    threads, answers = service.ask_all()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert answers == ANSWERS
    asked = counted([first, second], "asks")
    assert len(asked) == 4 * len(QUESTIONS)
    again = 0 if number == SIGTERM else len(QUESTIONS)
    assert asked.total() <= 4 * len(QUESTIONS) + again, "only what was under way"
    assert service.ask(QUESTIONS[0]) == ANSWERS[QUESTIONS[0]]
    assert service.ask("another", id=QUESTIONS[0]) == (409, None)
    assert counted([first, second], "asks") == asked, "the same id is the same run"


def assert_says_not_ready(service: Service, process: ExampleProcess) -> None:
    """While it still runs: a load balancer hears of the drain at once."""
    codes: list[int] = []
    with suppress(httpx.TransportError):
        while not process.has_ended and 503 not in codes:
            codes.append(service.client.get(service.ready_url).status_code)
    assert 503 in codes or len(codes) < 5, f"{codes}: a test that got no CPU may have come too late"


def test_service_drains_under_gunicorn(stage, service):
    service.url = f"http://127.0.0.1:{(port := stage.hold_port())}"
    process = stage.execute(
        *PYTHON, "-m", "gunicorn", "--pythonpath", stage.examples, "-k", "uvicorn_worker.UvicornWorker", "-w", 2,
        "-b", f"127.0.0.1:{port}", "--graceful-timeout", 300, "--no-control-socket", "service:web",
        OUTLAST_GRACE="250",
    )  # fmt: skip
    wait_until(lambda: service.is_ready(f"{service.url}/ops/ready"), process.describe)
    threads, answers = service.ask_all()
    process.until(r"asks .* 2$", len(QUESTIONS))
    assert process.end(SIGTERM) == 0
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert {status for status, _ in answers.values()} <= {200, 503}, process.errors
    assert set(counted([process], "asks").values()) == {1}
    assert (stage.folder / "outlast.db").exists(), "where it was typed, as under uvicorn: one store"


# --- consumer.py ---

MAILS = {f"mail-{n}" for n in range(1, 21)}
BUSY = {f"mail-{n}" for n in (5, 10, 15, 20)}
NOWHERE = "mail-13"


def is_settled(stage: Stage) -> bool:
    """Nothing waits, nothing is under way."""
    store = store_at(f"sqlite:///{stage.folder}/outlast.db")
    store.open()
    try:
        (queue,) = store.queues()
    finally:
        store.close()
    return not queue.queued and not queue.running


@either_signal
def test_ended_consumer_loses_no_item_and_sends_no_mail_twice(stage, number):
    for _ in range(2):
        assert stage.said(stage.start("consumer.py", "put", 20)) == ["20 waiting"]
    first = stage.start("consumer.py")
    wait_until(lambda: len(stage.ledger("outbox.txt")) >= 3, first.describe)
    assert first.end(number) == -number
    second = stage.start("consumer.py")
    wait_until(lambda: is_settled(stage), second.describe, pause=0.05)
    assert second.end(SIGTERM) == -SIGTERM

    outbox = Counter(line.split()[0] for line in stage.ledger("outbox.txt"))
    assert outbox == dict.fromkeys(MAILS - {NOWHERE}, 1)
    handled = Counter(
        line.split()[2] for process in (first, second) for line in process.like(" handles ")
    )
    alone = {id: 3 if id == NOWHERE else 2 if id in BUSY else 1 for id in MAILS}
    more = handled - Counter(alone)
    assert more.total() <= (4 if number == SIGKILL else 0), "only what it had in its four hands"
    assert set(handled) == MAILS
    dead = stage.answer("runs", "--status", "dead", "--json").json["runs"]
    assert [run["id"] for run in dead] == [f"mails/{NOWHERE}"]
