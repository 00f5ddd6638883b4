"""Each command prints the same and exits alike with `--server` as with `--store`."""

import json
import re

import pytest
from client_tools import TOKENS, asking, failing, napping, paying, reporting, speaking, spending
from served_store import served_store

from outlast import RunParked
from outlast.engine.executing_steps import EXECUTING
from outlast.store.address import store_at
from outlast.store.commands import RegisterWorker, Submit, UpdateSession
from support.cli import answer_in

PROGRAM = """
from outlast import workflow

@workflow
async def reporting(topic: str, /, *more: str, loud: bool = False):
    raise AssertionError("workers execute it")
"""
TIMES = re.compile(
    r"([-+]?\d+(\.\d+)? ?(ms|s|min|m|h|d)\b ?)+|\d{4}-\d\d-\d\d[T ][\d:.]+Z?|\d+\.\d+"
)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Yield a function that runs a command on a store and through its server."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "agent.py").write_text(PROGRAM)
    address = f"sqlite:///{folder}/runs.db"
    with served_store(address) as (remote, call):
        yield Both(folder, address, remote, call)


class Both:
    def __init__(self, folder, address, remote, call):
        self.folder, self.address, self.remote, self.call = folder, address, remote, call
        self.app = remote.app
        call(self.fill)

    async def fill(self):
        app = self.app
        await app.submit(reporting("tides"), id="done")
        await app.result("done")
        await app.submit(paying(5), id="parked")
        with pytest.raises(RunParked):
            await app.result("parked")
        await app.submit(spending(), id="broke")
        with pytest.raises(RunParked):
            await app.result("broke")
        await app.submit(failing(1), id="failed")
        with pytest.raises(Exception, match="1"):
            await app.result("failed")
        await app.submit(napping(3600.0), id="later", delay=3600.0, by="sue")
        await app.submit(speaking(["a", "b"]), id="spoken")
        await app.result("spoken")
        await app.submit(asking("why?"), id="asked")
        await app.send("asked", "answer", {"because": [1]}, message_id="m-1", by="sue")
        await app.result("asked")
        await app.schedule("nightly", reporting("x"), cron="0 2 * * *", tz="Europe/Berlin")
        await app.schedule("often", reporting("y"), every=90.0)
        await app.pause_schedule("often")
        await app.session("user-1").update(name="Ada", age=36, append={"turns": ["hi", None]})
        await app.checkpoint("import").save(page=3)
        await app.queue("emails").put_many([{"to": "ann"}, 2], ids=["1", "2"])
        async with app.limiter("openai", requests="5/1h").use():
            pass
        await app.queue("emails").limit(depth=9, concurrency=0)

    def on_store(self, words, capsys):
        return answer_in(self.folder, [*words, "--store", self.address], capsys)

    def on_server(self, words, capsys, **env):
        token = {"OUTLAST_TOKEN": TOKENS["olga"][1]}
        return answer_in(
            self.folder, [*words, "--server", self.remote.url], capsys, **(token | env)
        )

    def plain(self, text):
        """Return a text without times, and with one word for where it came from."""
        place = text.replace(f"--store {self.address}", "PLACE")
        place = place.replace(f"--server {self.remote.url}", "PLACE")
        text = re.sub(r"[ ─]+", " ", TIMES.sub("TIME", place))
        # Where a table cuts a cell depends on the width of the times beside it.
        return re.sub(r"TIME [^\n]*…", "TIME …", text)


LOOKS = [
    "runs",
    "runs --wide",
    "runs --status failed --status parked",
    "runs --status delayed",
    "runs --items",
    "runs --prefix spo",
    "runs --older-than 1h",
    "runs --newer-than 1h --limit 2",
    "runs --ids",
    "runs --undoing",
    "show done",
    "show parked",
    "show broke",
    "show failed --full",
    "show later",
    "show asked",
    "show emails/1",
    "show unknown",
    "workers --wide",
    "queues --wide",
    "schedules --wide",
    "limiters",
    "drains",
    "drains nobody",
    "sessions",
    "sessions --checkpoints",
    "sessions user-1",
    "sessions user-1 --limit 1",
    "sessions unknown",
    "sessions --checkpoints import",
    "limit emails",
    "limit emails --per-key-concurrency 2 --per-key-rate 10/1m",
    "limit emails --pause",
    "runs --wide --queue emails --items",
    "watch spoken answer",
    "watch asked",
    "watch failed",
    "watch unknown",
    "bulk retry --workflow failing",
    "bulk cancel",
    "send asked answer 1",
    "cancel done",
    "retry parked",
    "resume done",
    "decide parked unknown --did-not",
    "decide done charge --did-not",
    "schedule pause unknown",
    "schedule backfill nightly 2026-01-01 2026-01-02",
    "drain --worker nobody",
    "submit agent.py:reporting tides --id done",
    "submit agent.py:reporting other --id done",
    "submit agent.py:reporting other --id done --join",
]
"""Commands that change nothing, or nothing when they are repeated."""


@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("command", LOOKS)
def test_command_answers_alike(command, json, both, capsys):
    if json and "--ids" in command:
        return
    words = [*command.split(), *([] if "--wide" in command and json else json)]
    here, there = both.on_store(words, capsys), both.on_server(words, capsys)
    assert there.code == here.code
    assert both.plain(there.out) == both.plain(here.out)
    assert both.plain(there.err) == both.plain(here.err)


ACTIONS = [
    ("submit agent.py:reporting tides --id {}", None),
    ("cancel {}", napping(3600.0)),
    ("cancel {} --why enough", paying(5)),
    ("retry {}", failing(1)),
    ("resume {}", paying(5)),
    ('decide {} charge --happened "paid"', paying(5)),
    ("send {} answer 1 --message-id m-1", asking("why?")),
    ("bulk cancel --prefix {} --yes", napping(3600.0)),
    ("limit {} --depth 3", None),
    ("schedule trigger {} --json", "schedule"),
    ("schedule pause {}", "schedule"),
    ("schedule delete {}", "schedule"),
    ("sessions {} --delete", "session"),
    ("prune --older-than 100d", None),
]


@pytest.mark.parametrize(("command", "on"), ACTIONS, ids=[one for one, _ in ACTIONS])
def test_action_does_and_says_the_same(command, on, both, capsys):
    answers = []
    for number, run in enumerate((both.on_store, both.on_server)):
        name = f"act-{ACTIONS.index((command, on))}-{number}"
        both.call(made, both.app, on, name)
        answer = run(command.format(name).split(), capsys)
        texts = [both.plain(text.replace(name, "NAME")) for text in (answer.out, answer.err)]
        varying = re.compile(r"@[\w:-]+|by (os:\w+|olga)")
        answers.append((answer.code, *(varying.sub("", text) for text in texts)))
    assert answers[1] == answers[0]
    assert answers[0][0] == 0


async def made(app, on, name):
    if on == "schedule":
        await app.schedule(name, napping(3600.0), every=3600.0)
    elif on == "session":
        await app.session(name).set("a", 1)
    elif on is not None:
        # Nothing takes the runs that nap before the command has acted.
        delay = 3600.0 if on.workflow.name == "napping" else 0.0
        await app.submit(on, id=name, delay=delay)
        if on.workflow.name in ("paying", "failing"):
            with pytest.raises(Exception, match=r".*"):
                await app.result(name)


def test_server_records_the_caller_of_the_token(both, capsys):
    assert both.on_server(["submit", "agent.py:reporting", "x", "--id", "by-1"], capsys).code == 0
    assert both.on_server(["show", "by-1"], capsys).out.count("by olga") == 1


def test_environment_names_the_server_and_store_wins(both, capsys):
    env = {"OUTLAST_SERVER": both.remote.url, "OUTLAST_TOKEN": TOKENS["vera"][1]}
    found = answer_in(both.folder, ["runs", "--ids"], capsys, **env)
    assert (found.code, "done" in found.out.split()) == (0, True)
    empty = answer_in(both.folder, ["runs", "--store", "sqlite:///other.db"], capsys, **env)
    assert "no store" in empty.err
    refused = answer_in(both.folder, ["cancel", "done"], capsys, **env)
    assert "A viewer may not do this" in refused.err
    wrong = answer_in(both.folder, ["runs"], capsys, **(env | {"OUTLAST_TOKEN": "wrong" * 4}))
    assert (wrong.code, "no valid credentials" in wrong.err) == (2, True)


def test_server_that_is_away_is_an_error_to_repeat(both, capsys):
    away = answer_in(
        both.folder,
        ["runs", "--server", "http://127.0.0.1:1"],
        capsys,
        OUTLAST_CLIENT_PATIENCE="0.01",
    )
    assert (away.code, "did not answer" in away.err) == (75, True)


@pytest.mark.parametrize(
    "command",
    [
        "worker x.py",
        "run x.py:y",
        "serve x.py",
        "ui",
        "budgets",
        "migrate",
        "doctor",
        "bench",
        "demo",
    ],
)
def test_command_that_needs_the_store_says_so(command, both, capsys):
    refused = both.on_server(command.split(), capsys)
    assert refused.code == 2
    assert "works on the store itself" in " ".join(refused.err.split())


def test_show_names_the_steps_that_execute(both, capsys):
    store = store_at(both.address)
    store.open()
    try:
        submit = Submit("held", "elsewhere", "[]", "t-held", "00" * 16, worker="w9")
        row = store.commit([RegisterWorker("w9", "some-host", 1, 1e6), submit])[1].row
        steps = [["fetch#1", "fetch", "step", 1, row.created - 5.0]]
        fields = {str(row.pk): json.dumps([row.fence, steps])}
        store.commit([UpdateSession("w9", "t-steps", fields, 1e6, space=EXECUTING)])
    finally:
        store.close()
    said = [run(["show", "held"], capsys).out for run in (both.on_store, both.on_server)]
    assert "Executing step fetch#1 for " in said[0]
    assert both.plain(said[1]) == both.plain(said[0])
    documents = [
        json.loads(run(["show", "held", "--json"], capsys).out)
        for run in (both.on_store, both.on_server)
    ]
    assert documents[1]["executing"] == documents[0]["executing"] != []
