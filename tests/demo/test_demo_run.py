"""`outlast demo` as somebody types it: it says what is so, needs nothing of the folder, leaves a store, and no process."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace

import pytest
from demo_tools import demo, gone_within, is_alive, pids_in, read_until, started

from command import answer_in, answer_of, as_nobody
from outlast.demo.scene import Happening, Scene, Work
from outlast.demo.view import WIDTH, Lines

HOSTILE_ENV_FILE = "OUTLAST_CONCURRENCY=50\nOUTLAST_NO_SUCH_SETTING=1\nOUTLAST_LEASE=0.1\n"
HOSTILE = {
    "OUTLAST_QUEUES": "others", "OUTLAST_HTTP": "127.0.0.1:1", "OUTLAST_STORE": "redis://127.0.0.1:1/0", "OUTLAST_SECRETS_DIR": "/nowhere",
    "DATABASE_URL": "postgresql://127.0.0.1:1/none", "SHUTDOWN_TIMEOUT": "1", "http_proxy": "http://127.0.0.1:1", "outlast_grace": "x",
}  # fmt: skip


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One whole run, in a folder and an environment that would disturb any other program of Outlast's."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / ".env").write_text(HOSTILE_ENV_FILE)
    (folder / "queue.py").write_text("raise SystemExit('a module of the folder was imported')")
    (folder / "outlast-demo.db.bak").write_text("not the demo's")
    done = demo(folder, "--json", "--record", "demo.svg", **HOSTILE)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


@pytest.fixture(scope="module")
def found(shown) -> dict:
    return json.loads(shown[1].stdout)


def test_its_claims_hold_and_it_exits_with_0(found):
    assert found["passed"]
    assert [check["wrong"] for check in found["checks"]] == [[]] * 6


def test_one_worker_was_stopped_one_was_killed_and_one_carried_on(found):
    assert found["workers"] == {"A": 0, "B": -signal.SIGKILL, "C": 0}
    assert found["runs"]["tides"]["interruptions"] == found["runs"]["bees"]["deaths"] == 1
    assert {run["status"] for run in found["runs"].values()} == {"done"}


def test_only_a_part_of_one_step_is_redone_and_every_message_is_sent_once(found):
    assert found["redone"] == [{"request": "answer", "run": "bees", "begun": 2}]
    answer = found["answer"]
    assert 0 < answer["kept"] <= answer["arrived"] < answer["tokens"]
    assert len({(one["to"], one["text"]) for one in found["messages"]}) == len(found["messages"]) == 7
    assert found["tokens"]["saved"] > 0


def test_its_workers_have_the_default_settings(shown):
    """But for slots and queue, which are words of the command."""
    script = """
import os
from outlast.demo.place import environ_of
from outlast.settings.load import load
from outlast.settings.settings import Settings
loaded = load({}, environ_of(os.environ))
assert loaded.settings == Settings(), loaded.settings
"""
    env = {**os.environ, **HOSTILE}
    subprocess.run([sys.executable, "-P", "-c", script], cwd=shown[0], env=env, check=True, timeout=60)


def test_it_leaves_a_store_to_look_at_and_what_was_beside_it(shown, capsys):
    folder, _ = shown
    for words, text in ((["runs"], "glaciers"), (["show", "bees"], "1 death"), (["drains"], "SIGTERM")):
        typed = [*words, "--store", "sqlite:///outlast-demo.db"]
        assert text in answer_in(folder, typed, capsys, OUTLAST_ENV_FILE="").out
    assert (folder / "outlast-demo.db.bak").read_text() == "not the demo's"
    assert (folder / "outlast-demo.db").stat().st_mode & 0o777 == 0o600


def test_its_lines_fit(shown):
    lines = [line for line in shown[1].stderr.splitlines() if not line.startswith("outlast: ")]
    assert lines
    assert all(len(line) <= WIDTH and "\r" not in line and "\x1b" not in line for line in lines)


def test_nobody_waits_long_for_a_line(monkeypatch):
    now = 100.0
    monkeypatch.setattr("outlast.demo.view.time", SimpleNamespace(monotonic=lambda: now))
    said = io.StringIO()
    lines, scene = Lines(said), Scene(works=[Work("tides", "running", 1, "thinks"), Work("bees", "done", 3)])
    while scene.seconds < 20:
        now, scene.seconds = now + 0.25, scene.seconds + 0.25
        if scene.seconds == 3.0:
            scene.happenings.append(Happening(3.0, "worker A starts"))
        lines.show(scene)
    assert said.getvalue().splitlines() == [
        "  3.0 s  worker A starts", "  8.2 s  (tides thinks)", " 13.5 s  (tides thinks)", " 18.8 s  (tides thinks)",
    ]  # fmt: skip


def test_how_things_stand_is_cut_between_two_words_where_it_is_too_long(monkeypatch):
    now = 100.0
    monkeypatch.setattr("outlast.demo.view.time", SimpleNamespace(monotonic=lambda: now))
    said = io.StringIO()
    lines, works = (
        Lines(said),
        [Work(name, "running", 3, "writes: 100 of 108 tokens") for name in ("tides", "bees")],
    )
    now += 10
    lines.show(Scene(seconds=100.0, works=[*works, Work("glaciers", "waiting", 2)]))
    told = "(tides writes: 100 of 108 tokens; bees writes: 100 of 108 tokens; …)"
    assert said.getvalue() == f"100.0 s  {told}\n"


def test_ctrl_c_in_the_middle_leaves_no_process_behind(tmp_path):
    with started(tmp_path) as process:
        pids = pids_in(read_until(process, "worker C starts"))
        assert len(pids) == 3
        assert is_alive(pids[1])
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert not any(map(is_alive, pids))


def test_a_demo_that_is_killed_takes_its_workers_with_it(tmp_path):
    with started(tmp_path) as process:
        pids = pids_in(read_until(process, "worker B starts"))
        process.kill()
        process.communicate(timeout=30)
    assert gone_within(pids)
    with started(tmp_path) as process:
        read_until(process, "worker A starts")  # what it left is in nobody's way
        process.kill()


def test_a_reader_who_goes_away_ends_it_and_its_workers(tmp_path):
    with started(tmp_path) as process:
        pids = pids_in(read_until(process, "worker A starts"))
        process.stdout.close()  # type: ignore[union-attr]
        assert process.wait(timeout=60) != 0
        said = process.stderr.read()  # type: ignore[union-attr]
    assert "Traceback" not in said
    assert gone_within(pids)


def test_a_second_one_beside_it_is_refused_and_does_not_disturb_it(tmp_path):
    with started(tmp_path) as process:
        read_until(process, "glaciers begins")
        second = demo(tmp_path)
        assert second.returncode == 2, second.stdout
        assert "somebody works" in second.stderr
        process.communicate(timeout=90)
    assert process.returncode == 0


def test_a_picture_is_an_svg_in_a_folder_that_is_there(tmp_path, capsys):
    for name, why in (("demo.png", "ends in .svg"), ("nowhere/demo.svg", "no such folder")):
        answer = answer_in(tmp_path, ["demo", "--record", name], capsys)
        assert answer.code == 2
        assert why in answer.err
    assert not list(tmp_path.iterdir())


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_shown(tmp_path, capsys):
    shut = Path(mkdtemp(prefix="outlast-shut-"))  # pytest's own folders cannot be entered by others
    shut.chmod(0o555)
    answer_in(tmp_path, ["demo", "--record", "demo.png"], capsys)
    with as_nobody():
        answer = answer_of(["demo", "--record", f"{shut}/demo.svg", "--store-file", f"{shut}/x.db"], capsys)
    shut.rmdir()
    assert answer.code == 2
    assert "nothing can be written into that folder: Permission denied." in " ".join(answer.err.split())


def test_a_store_of_somebody_else_under_its_name_is_refused_and_not_touched(tmp_path, capsys):
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
