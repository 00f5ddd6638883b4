"""`outlast demo` on the command line: its output, its store, and the processes it ends."""

import io
import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace

import pytest
from demo_tools import HOSTILE, PACE, QUICK_DEMO, clean, lines_until, pids_in, started

from outlast.settings.load import load
from outlast.settings.settings import Settings
from outlast.tools.demo.claims import check, document
from outlast.tools.demo.command import demo
from outlast.tools.demo.facts import Facts
from outlast.tools.demo.view import CAPTION, WIDTH, Event, Lines, State
from outlast.tools.demo.workspace import isolated_environment
from support.cli import answer_in, answer_of, as_nobody
from support.processes import is_running, wait_until_gone
from support.spawned import spawn
from support.waiting import WAIT_SECONDS, wait_until


def test_demo_claims_hold_and_it_exits_0(recorded):
    assert recorded.document["passed"]
    assert [claim["problems"] for claim in recorded.document["claims"]] == [[]] * 7


def test_caption_matches_the_three_workers(recorded):
    """A is stopped, B is killed, and C finishes every run."""
    document = recorded.document
    assert document["workers"] == {"A": 0, "B": -signal.SIGKILL, "C": 0}
    assert document["runs"]["tides"]["interruptions"] == document["runs"]["bees"]["deaths"] == 1
    assert {run["status"] for run in document["runs"].values()} == {"done"}
    assert "on three workers" in CAPTION
    help_text = " ".join((demo.__doc__ or "").split())
    assert CAPTION.partition(". ")[2] in help_text


def test_only_one_step_runs_again_and_every_message_is_sent_once(recorded):
    document = recorded.document
    assert document["repeated"] == [{"request": "answer", "run": "bees", "count": 2}]
    answer = document["answer"]
    assert 0 < answer["kept"] <= answer["arrived"] < answer["tokens"]
    messages = document["messages"]
    assert len({(one["to"], one["text"]) for one in messages}) == len(messages) == 7
    assert document["tokens"]["saved"] > 0


def test_the_exit_of_the_last_worker_is_the_last_event(recorded):
    """Nothing is left to wait for: the list of claims follows at once."""
    assert recorded.document["events"][-1]["text"] == "C exits with code 0"
    events, _, rest = recorded.output.partition("\n\n")
    assert events.endswith("C exits with code 0")
    assert rest.startswith("The demo checked 7 claims")


def test_demo_workers_have_default_settings(recorded, monkeypatch):
    """Only slots and queue differ. They are options of the command."""
    monkeypatch.chdir(recorded.folder)
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    with isolated_environment():
        assert load({}, os.environ).settings == Settings()


def replay(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `outlast demo` in this process show the facts of an earlier demo."""
    monkeypatch.setattr("outlast.tools.demo.scenario.run_scenario", lambda *_, **__: facts)


def test_json_output_is_one_document(good, tmp_path, monkeypatch, capsys):
    replay(good, monkeypatch)
    monkeypatch.chdir(tmp_path)
    answer = answer_in(tmp_path, ["demo", "--json"], capsys)
    assert answer.code == 0, answer
    assert answer.json == json.loads(
        json.dumps(document(good, check(good), Path("outlast-demo.db")))
    )


@pytest.mark.parametrize("words", [[], ["--json"]], ids=["text", "json"])
def test_demo_with_a_false_claim_exits_1(good, tmp_path, monkeypatch, capsys, words):
    replay(replace(good, drain=None), monkeypatch)
    answer = answer_in(tmp_path, ["demo", *words], capsys)
    assert answer.code == 1, answer
    assert ("FAILED" in answer.out) if not words else (answer.json["passed"] is False)


def test_demo_leaves_its_store_and_other_files(recorded, capsys):
    folder = recorded.folder
    for words, text in (
        (["runs"], "glaciers"),
        (["show", "bees"], "1 death"),
        (["drains"], "SIGTERM"),
    ):
        typed = [*words, "--store", "sqlite:///outlast-demo.db"]
        assert text in answer_in(folder, typed, capsys, OUTLAST_ENV_FILE="").out
    assert (folder / "outlast-demo.db.bak").read_text() == "not the demo's"
    assert (folder / "outlast-demo.db").stat().st_mode & 0o777 == 0o600


def test_demo_lines_fit_the_width(recorded):
    *lines, look_closer = recorded.output.splitlines()
    assert look_closer.startswith("Look closer  ")
    assert len(lines) > 30
    assert all(len(line) <= WIDTH and "\r" not in line and "\x1b" not in line for line in lines)


def test_demo_prints_a_line_every_few_seconds(monkeypatch):
    now = 100.0
    monkeypatch.setattr("outlast.tools.demo.view.time", SimpleNamespace(monotonic=lambda: now))
    said = io.StringIO()
    lines, scene = (
        Lines(said),
        State(doing="tides thinking"),
    )
    while scene.seconds < 20:
        now, scene.seconds = now + 0.25, scene.seconds + 0.25
        if scene.seconds == 3.0:
            scene.events.append(Event(3.0, "worker A starts"))
        lines.show(scene)
    assert said.getvalue().splitlines() == [
        "  3.0 s  worker A starts", "  8.2 s  (tides thinking)", " 13.5 s  (tides thinking)", " 18.8 s  (tides thinking)",
    ]  # fmt: skip


def test_long_status_line_is_cut_at_a_word(monkeypatch):
    now = 100.0
    monkeypatch.setattr("outlast.tools.demo.view.time", SimpleNamespace(monotonic=lambda: now))
    said = io.StringIO()
    lines = Lines(said)
    now += 10
    doing = "tides writing: 100 of 108 tokens; bees writing: 100 of 108 tokens"
    lines.show(State(seconds=100.0, doing=f"{doing}; glaciers waiting"))
    assert said.getvalue() == f"100.0 s  ({doing.removesuffix(' tokens')} ...)\n"


def test_interrupted_demo_leaves_no_process(tmp_path):
    with started(tmp_path) as process:
        pids = pids_in(lines_until(process, "worker C starts"))
        assert len(pids) == 3
        assert is_running(pids[1])
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130, process.describe()
        assert "Traceback" not in process.errors
    assert not any(map(is_running, pids))


def test_killed_demo_takes_its_workers_with_it(tmp_path):
    with started(tmp_path) as process:
        pids = pids_in(lines_until(process, "worker B starts"))
    for pid in pids:
        wait_until_gone(pid)
    with started(tmp_path) as process:
        # The store of the first demo is replaced.
        lines_until(process, "worker A starts")


def test_closed_pipe_ends_the_demo_and_its_workers(tmp_path):
    command = [sys.executable, "-u", "-c", QUICK_DEMO, "demo", "--pace", PACE]
    with (tmp_path / "errors").open("w") as errors:
        process = spawn(command, stdout=subprocess.PIPE, stderr=errors, cwd=tmp_path, env=clean())
    try:
        lines = itertools.takewhile(lambda line: not pids_in([line]), process.stdout)
        assert all(lines)
        (worker,) = wait_until(lambda: children_of(process.pid))
        process.stdout.close()
        assert process.wait(WAIT_SECONDS) != 0
    finally:
        process.kill()
        process.wait(WAIT_SECONDS)
    assert "Traceback" not in (tmp_path / "errors").read_text()
    wait_until_gone(worker)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_second_demo_in_a_folder_is_refused(tmp_path, capsys):
    with started(tmp_path) as process:
        lines_until(process, "glaciers starts")
        second = answer_in(tmp_path, ["demo"], capsys)
        assert second.code == 2, second.out
        assert "is in use" in second.err
        lines_until(process, "tides starts")


def test_a_picture_is_an_svg_in_a_folder_that_is_there(tmp_path, capsys):
    for name, why in (("demo.png", "must end in .svg"), ("nowhere/demo.svg", "no such folder")):
        answer = answer_in(tmp_path, ["demo", "--record", name], capsys)
        assert answer.code == 2
        assert why in answer.err
    assert not list(tmp_path.iterdir())


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_shown(tmp_path, capsys):
    shut = Path(mkdtemp(prefix="outlast-shut-"))  # pytest's own folders cannot be entered by others
    shut.chmod(0o555)
    answer_in(tmp_path, ["demo", "--record", "demo.png"], capsys)
    with as_nobody():
        answer = answer_of(
            ["demo", "--record", f"{shut}/demo.svg", "--store-file", f"{shut}/x.db"], capsys
        )
    shut.rmdir()
    assert answer.code == 2
    assert "nothing can be written into that folder: Permission denied." in " ".join(
        answer.err.split()
    )


def test_demo_refuses_and_keeps_a_store_it_did_not_make(tmp_path, capsys):
    program = tmp_path / "theirs.py"
    program.write_text(
        "from outlast import workflow\n\n@workflow\nasync def research() -> int:\n    return 1\n"
    )
    run = ["run", "theirs.py:research", "--id", "bees", "--store", "sqlite:///outlast-demo.db"]
    assert answer_in(tmp_path, run, capsys).code == 0
    before = (tmp_path / "outlast-demo.db").read_bytes()
    answer = answer_in(tmp_path, ["demo", "--json"], capsys)
    assert answer.code == 2
    assert answer.json["error"]["type"] == "DemoRefused"
    assert "not the demo's" in answer.err
    assert (tmp_path / "outlast-demo.db").read_bytes() == before
