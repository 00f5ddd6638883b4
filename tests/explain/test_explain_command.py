"""`outlast explain`, and where the command line names it."""

import sqlite3
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from uncertain import UNCERTAIN

from outlast.cli import main
from outlast.cli.explain import WIDTH_MIN
from outlast.explain.pages import PAGES
from outlast.explain.texts import entries
from support.cli import Answer, answer_of
from support.waiting import WAIT_SECONDS

PROGRAM = """
import asyncio

from outlast import effect, step, workflow


@step
async def fetch() -> str:
    return "fetched"


@step(timeout=0.01)
async def hang() -> None:
    await asyncio.sleep(60)


@workflow
async def slow() -> None:
    await hang()


@workflow
async def broken() -> None:
    await fetch()
    raise ValueError("the reason")
"""


@pytest.fixture
def outlast(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("OUTLAST_EFFECT_MARGIN", "0.1")
    for name in (
        "OUTLAST_STORE",
        "DATABASE_URL",
        "REDIS_URL",
        "REDIS_HOST",
        "STATE_DB_PATH",
        "COLUMNS",
    ):
        monkeypatch.delenv(name, raising=False)
    Path("agent.py").write_text(PROGRAM + UNCERTAIN)

    def call(*words: str) -> Answer:
        sys.modules.pop("agent", None)
        return answer_of(words, capsys)

    return call


# -- the command


def test_a_name_is_explained_without_a_store_and_none_is_made(outlast, tmp_path):
    answer = outlast("explain", "backpressure")
    assert answer.code == 0
    assert answer.err == ""
    assert answer.out.startswith(
        "Backpressure\n\nThe queue is full.\n\nLooks like. `queue 'default' is full"
    )
    assert "\n    outlast limit QUEUE --depth 2000000\n" in answer.out
    assert "**" not in answer.out
    assert [file.name for file in tmp_path.iterdir()] == ["agent.py"]


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_every_text_fits_a_terminal_and_what_is_to_be_pasted_is_whole(outlast, monkeypatch, entry):
    monkeypatch.setenv("COLUMNS", "60")
    shown = outlast("explain", entry.name).out.splitlines()
    assert shown[0] == entry.title
    pasted = [line for line in entry.body.splitlines() if line.startswith("    ")]
    assert [line for line in shown if line.startswith("    ")] == [
        line.replace("…", "...") for line in pasted
    ]
    longest = max(
        len(word)
        for word in " ".join(line for line in shown if not line.startswith("    ")).split("`")
    )
    assert all(len(line) <= max(60, longest + 4) for line in shown if not line.startswith("    "))
    monkeypatch.setenv("COLUMNS", "1")
    assert max(map(len, outlast("explain", entry.name).out.splitlines())) > WIDTH_MIN - 10


def test_explain_suggests_the_closest_name(outlast):
    answer = outlast("explain", "Backpresure")
    assert answer.code == 2
    assert "no entry is named Backpresure. Did you mean Backpressure?" in " ".join(
        answer.err.split()
    )
    assert outlast("explain", "zzzzzz").code == 2
    assert "outlast explain` lists all" in " ".join(outlast("explain", "zzzzzz").err.split())


def test_a_hostile_name_has_no_power_over_the_terminal(outlast):
    answer = outlast("explain", "\x1b[31mred\x07")
    assert answer.code == 2
    assert "\x1b" not in answer.err
    assert "\x07" not in answer.err


def test_without_a_name_all_are_listed(outlast):
    lines = outlast("explain").out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == [
        one.name for one in entries()
    ]
    assert lines[0] == "errors: calls and values"
    assert "alerts:" in lines


def test_programs_get_the_parts(outlast):
    alert = outlast("explain", "OutlastDeadLetters", "--json").json
    assert (alert["name"], alert["kind"], alert["page"]) == (
        "OutlastDeadLetters",
        "alert",
        "runbook.md#outlastdeadletters",
    )
    assert list(alert["parts"]) == ["Urgent?", "Look", "Decide", "Afterwards", "Silence"]
    assert outlast("explain", "75", "--json").json["page"] == "exit-codes.md#exit-code-75"
    assert outlast("explain", "unknown", "--json").json["page"] == "errors-runs.md#parked-unknown"
    assert [one["name"] for one in outlast("explain", "--json").json] == [
        one.name for one in entries()
    ]


@pytest.mark.parametrize("status", ["failed", "cancelled", "parked", "dead"])
def test_a_status_that_runs_shows_is_explained_too(outlast, status):
    assert outlast("explain", status, "--json").json["name"] == f"Run{status.capitalize()}"


def test_pages_are_written_over_what_is_there(outlast, tmp_path):
    Path("pages").mkdir()
    Path("pages/errors.md").write_text("old")
    assert outlast("explain", "--write", "pages").code == 0
    assert {file.name for file in Path("pages").iterdir()} == set(PAGES)
    assert "### Backpressure" in Path("pages/errors-queues.md").read_text()
    assert outlast("explain", "--write", "new", "--json").json == {
        "written": [f"new/{page}" for page in PAGES]
    }
    assert outlast("explain", "Backpressure", "--write", "pages").code == 2


def test_a_folder_that_cannot_be_written_is_one_line(outlast):
    answer = outlast("explain", "--write", "agent.py/pages")
    assert answer.code == 1
    assert "cannot be written" in answer.err
    assert "Traceback" not in answer.err


def test_neither_the_library_nor_help_reads_the_texts(tmp_path):
    code = (
        "import sys, outlast, outlast.errors; outlast.errors.Backpressure('q', 1, 1)\n"
        "print([name for name in sys.modules if name in ('outlast.explain.texts', 'importlib.resources', 'difflib')])\n"
        "from outlast.cli import main\n"
        "try: main(['runs', '--help'])\n"
        "except SystemExit: print('outlast.explain.texts' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.splitlines()[0] == "[]"
    assert done.stderr.strip() == "False"


def test_explain_prints_to_a_terminal_that_has_only_ascii(monkeypatch):
    for words in ([], ["WrongStatus"], ["RunDead"], ["unknown"]):
        terminal = TextIOWrapper(BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", terminal)
        with pytest.raises(SystemExit) as ended:
            main(["explain", *words])
        terminal.flush()
        said = terminal.buffer.getvalue()
        assert not ended.value.code
        assert said
        assert said.isascii()
        assert b"\\u" not in said


# -- where it is named


def test_an_error_of_the_command_line_names_it(outlast):
    answer = outlast("show", "r-1")
    assert answer.err.splitlines()[1] == "outlast: For more, run `outlast explain NoStore`."
    assert outlast("show", "r-1", "--json").json["error"]["explain"] == "NoStore"
    outlast("migrate")
    assert outlast("show", "r-1", "--json").json["error"]["explain"] == "UnknownRun"


def test_a_setting_that_is_wrong_names_the_class_that_has_a_text(outlast, monkeypatch):
    monkeypatch.setenv("OUTLAST_GRACE", "-1")
    answer = outlast("runs", "--json")
    assert answer.code == 2
    assert answer.json["error"]["explain"] == "SettingsError"
    assert "outlast explain SettingsError" in answer.err


def test_several_errors_name_each_once(outlast):
    outlast("migrate")
    answer = outlast("retry", "a", "b", "--json")
    assert [one["error"]["explain"] for one in answer.json["runs"]] == ["UnknownRun", "UnknownRun"]
    assert answer.err.count("outlast explain UnknownRun") == 1


def ended(outlast, workflow: str, code: int, name: str) -> None:
    answer = outlast("run", f"agent.py:{workflow}", "--id", "r", "--json")
    assert answer.code == code, answer
    named_as(outlast, name)
    assert answer.json["explain"] == name
    assert f"outlast: For more, run `outlast explain {name}`." in answer.err.splitlines()


def named_as(outlast, name: str) -> None:
    shown = outlast("show", "r").out.splitlines()
    assert f"For more, run `outlast explain {name}`." in shown, shown
    assert outlast("show", "r", "--json").json["run"]["explain"] == name
    [listed] = outlast("runs", "--json").json["runs"]
    assert listed["explain"] == name
    assert outlast("explain", name).code == 0


def test_a_run_that_failed_by_the_programs_own_error(outlast):
    ended(outlast, "broken", 1, "RunFailed")
    assert outlast("runs").err == "", "it is no news that a program's exception ends a run"


def test_a_run_that_failed_by_an_error_of_ours(outlast):
    ended(outlast, "slow", 1, "StepTimeout")
    outlast("run", "agent.py:slow", "--id", "r2")
    outlast("run", "agent.py:posting", "--id", "r3")
    told = [
        f"outlast: For more, run `outlast explain {name}`." for name in ("unknown", "StepTimeout")
    ]
    assert outlast("runs").err.splitlines() == told, "each once"


def test_explain_run_parked_for_an_unknown_effect(outlast):
    ended(outlast, "posting", 5, "unknown")


def test_explain_run_parked_because_it_cannot_be_undone(outlast):
    ended(outlast, "trip", 5, "stuck")


def test_explain_run_parked_because_its_code_has_changed(outlast):
    outlast("run", "agent.py:broken", "--id", "r")
    outlast("retry", "r")
    Path("agent.py").write_text(PROGRAM.replace("fetch", "search"))
    ended(outlast, "broken", 5, "Diverged")


def test_explain_run_parked_because_its_journal_cannot_be_read(outlast):
    outlast("run", "agent.py:trip", "--id", "r")
    outlast("retry", "r")
    with sqlite3.connect("outlast.db") as db:
        db.execute("UPDATE entries SET value = '{' WHERE kind = 'intent'")
    db.close()
    ended(outlast, "trip", 5, "unreadable")


def test_a_run_that_is_well_names_nothing(outlast):
    Path("agent.py").write_text(PROGRAM.replace('raise ValueError("the reason")', "return None"))
    assert outlast("run", "agent.py:broken", "--id", "r", "--json").json["explain"] is None
    assert "outlast explain" not in outlast("show", "r").out
    assert outlast("runs").err == ""


def test_a_recorded_type_that_lies_names_nothing_that_is_not_there(outlast):
    outlast("run", "agent.py:broken", "--id", "r")
    for lie in ("outlast.errors:\\u001b[31mred", "outlast.nothing", "[[[["):
        with sqlite3.connect("outlast.db") as db:
            db.execute("UPDATE runs SET error = ?", (f'{{"type":"{lie}","message":"x"}}',))
        db.close()
        assert outlast("show", "r", "--json").json["run"]["explain"] == "RunFailed"
        assert "\x1b" not in outlast("show", "r").out
