"""`outlast run`."""

from __future__ import annotations

import json
import time

import pytest

from outlast.store.commands import Cancel, Release, Settle
from support.cli import as_nobody


def test_the_result_alone_is_on_stdout_as_json(outlast):
    answer = outlast("run", "agent.py:report", "tides", "--id", "r1")
    assert answer.code == 0
    assert answer.out == '"notes on tides"\n'
    assert "the program prints" in answer.err


def test_generated_id_is_printed_with_the_command_that_resumes(outlast):
    answer = outlast("run", "agent.py:echo")
    row = outlast(*"runs --json".split()).json["runs"][0]
    assert f"outlast run agent.py:echo --id {row['id']}" in answer.err


@pytest.mark.parametrize("command", ["run", "submit"])
def test_generated_ids_ascend(outlast, command):
    before = time.time_ns()
    outlast(command, "agent.py:echo")
    (row,) = outlast(*"runs --json".split()).json["runs"]
    assert before <= int(row["id"][:16], 16) <= time.time_ns()


def test_a_module_can_be_named_instead_of_a_file(outlast):
    package = outlast.folder / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mod.py").write_text((outlast.folder / "agent.py").read_text())
    assert outlast("run", "pkg.mod:report", "tides").out == '"notes on tides"\n'


def test_a_file_is_imported_under_its_stem_with_its_folder_on_the_path(outlast):
    folder = outlast.folder / "deep"
    folder.mkdir()
    (folder / "helper.py").write_text("WORD = 'helped'\n")
    (folder / "prog.py").write_text(
        "from outlast import workflow\nimport helper\n\n@workflow\nasync def w() -> str:\n    return helper.WORD + __name__\n"
    )
    assert outlast("run", "deep/prog.py:w").out == '"helpedprog"\n'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("[1, {}]", [1, {}]),
        ("null", None),
        ('"1"', "1"),
        ("tides", "tides"),
        ("{not json", "{not json"),
        ("NaN", "NaN"),
        ("é中", "é中"),
    ],
)
def test_an_argument_is_json_or_else_a_text(outlast, text, value):
    assert json.loads(outlast("run", "agent.py:echo", text).out) == value


def test_an_argument_for_a_str_parameter_stays_a_text(outlast):
    assert outlast("run", "agent.py:report", "2024").out == '"notes on 2024"\n'


def test_arguments_are_read_by_their_annotations(outlast):
    topic = '{"name": "x", "when": "2024-01-02"}'
    answer = outlast("run", "agent.py:dated", topic, "1", "2", "--kwargs", '{"flag": true}')
    assert answer.json == ["x", 2024, [1, 2], True]


def test_an_argument_with_a_dash_goes_after_two(outlast):
    assert outlast("run", "agent.py:echo", "--", "-5").out == "-5\n"


def test_the_same_id_gives_the_recorded_result_and_executes_nothing(outlast):
    outlast("run", "agent.py:report", "tides", "--id", "r1")
    again = outlast("run", "agent.py:report", "tides", "--id", "r1")
    assert (again.code, again.out) == (0, '"notes on tides"\n')
    assert "the program prints" not in again.err


def test_without_arguments_a_run_that_exists_goes_on_with_its_own(outlast):
    outlast.submitted("r1")
    assert outlast("run", "agent.py:report", "--id", "r1").out == '"notes on tides"\n'


def test_the_id_of_another_workflows_run_is_a_conflict_also_without_arguments(outlast):
    outlast("run", "agent.py:echo", "1", "--id", "r1")
    answer = outlast("run", "agent.py:report", "--id", "r1")
    assert answer.code == 1
    assert "run 'r1' was started as echo(" in answer.err
    assert "but this call is report." in answer.err


def test_other_arguments_under_the_same_id_are_a_conflict(outlast):
    outlast("run", "agent.py:report", "tides", "--id", "r1")
    answer = outlast("run", "agent.py:report", "winds", "--id", "r1")
    assert answer.code == 1
    assert answer.err.startswith("outlast: run 'r1' was started as")


def test_a_failed_run_exits_1_and_says_what_to_do(outlast):
    answer = outlast("run", "agent.py:report", "bad", "--id", "r1")
    assert (answer.code, answer.out) == (1, "")
    assert "run r1 failed: RuntimeError: boom" in answer.err
    assert "`outlast show r1`" in answer.err
    assert "`outlast retry r1`" in answer.err


def test_a_workflow_that_fails_with_an_error_of_a_cancelled_child_has_failed(outlast):
    (outlast.folder / "sly.py").write_text(
        "from outlast import RunCancelled, workflow\n\n@workflow\nasync def w() -> None:\n    raise RunCancelled('other')\n"
    )
    assert outlast("run", "sly.py:w", "--id", "r1").code == 1


def test_a_workflow_that_raises_cancelled_error_by_itself_has_failed(outlast):
    (outlast.folder / "odd.py").write_text(
        "import asyncio\nfrom outlast import workflow\n\n@workflow\nasync def w() -> None:\n    raise asyncio.CancelledError\n"
    )
    assert outlast("run", "odd.py:w", "--id", "r1").code == 1


def test_a_dead_letter_exits_1(outlast):
    row = outlast.started("r1")
    outlast.commit(Settle(row.pk, row.fence, "dead", reason="it killed 3 workers"))
    answer = outlast("run", "agent.py:report", "tides", "--id", "r1")
    assert answer.code == 1
    assert "is a dead letter: it killed 3 workers" in answer.err


def test_a_run_whose_code_changed_is_parked_and_exits_5(outlast):
    row = outlast.started("r1")
    outlast.entry(row, 1, "step", "older_step#1", args="", value="1")
    outlast.commit(Release(row.pk, row.fence, "test"))
    answer = outlast("run", "agent.py:report", "tides", "--id", "r1")
    assert (answer.code, answer.out) == (5, "")
    assert "run r1 is parked: the journal recorded step older_step#1" in answer.err
    assert "`outlast resume r1`" in answer.err


def test_a_cancelled_run_exits_6(outlast):
    row = outlast.started("r1", "waits", "{}")
    outlast.commit(Release(row.pk, row.fence, "test"), Cancel("r1", "enough"))
    answer = outlast("run", "agent.py:waits", "--id", "r1")
    assert answer.code == 6
    assert "run r1 was cancelled: enough" in answer.err


@pytest.mark.parametrize(("topic", "code", "status"), [("tides", 0, "done"), ("bad", 1, "failed")])
def test_json_is_one_document_however_it_ends(outlast, topic, code, status):
    answer = outlast("run", "agent.py:report", topic, "--id", "r1", "--json")
    assert answer.code == code
    assert set(answer.json) == {"id", "workflow", "status", "result", "error", "reason", "explain"}
    assert answer.json["status"] == status
    if code:
        assert set(answer.json["error"]) == {"type", "message", "traceback"}
        assert (answer.json["error"]["type"], answer.json["error"]["message"]) == (
            "RuntimeError",
            "boom",
        )


def test_the_store_can_be_named_by_option_or_environment(outlast, monkeypatch):
    outlast("run", "agent.py:echo", "1", "--id", "a", "--store", "sqlite:///one.db")
    monkeypatch.setenv("OUTLAST_STORE", "sqlite:///two.db")
    outlast("run", "agent.py:echo", "1", "--id", "b")
    assert [
        run["id"] for run in outlast("runs", "--json", "--store", "sqlite:///one.db").json["runs"]
    ] == ["a"]
    assert [run["id"] for run in outlast("runs", "--json").json["runs"]] == ["b"]
    assert not outlast.db.exists()


def test_hints_name_the_store_that_was_given(outlast):
    answer = outlast("run", "agent.py:report", "bad", "--id", "r 1", "--store", "sqlite:///one.db")
    assert "`outlast retry 'r 1' --store sqlite:///one.db`" in answer.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["agent.py"], "is not FILE:WORKFLOW"),
        (["agent.py:"], "is not FILE:WORKFLOW"),
        (["absent.py:report"], "there is no file"),
        (["absent:report"], "there is no module"),
        (["agent.py:absent"], "Workflows there: report, echo, typed, waits"),
        (["agent.py:not_a_workflow"], "is not a workflow"),
        (["agent.py:report"], "report(): missing a required argument: 'topic'."),
        (["agent.py:report", "a", "b"], "too many positional arguments"),
        (["agent.py:report", "--kwargs", "{"], "it is not JSON"),
        (["agent.py:report", "--kwargs", "[1]"], "must be a JSON object"),
        (["agent.py:report", "--kwargs", '{"nope": 1}'], "missing a required argument"),
        (["agent.py:dated", '{"name": "x"}'], "the arguments do not fit dated: "),
        (["agent.py:dated", '{"name": "x"}'], "Field required."),
        (["agent.py:waits", "maybe"], "the arguments do not fit waits: 'maybe' is not bool."),
        (["agent.py:echo", "--id", ""], "run id must be a non-empty string"),
        (["agent.py:echo", "--id", "a\x1bb"], "has a character that cannot be stored"),
        (["agent.py:echo", "--store", "mysql://x"], "is not the address of a store"),
        (["agent.py:echo", "--unknown"], "No such option"),
        (["two words.py:w"], "there is no file"),
    ],
)
def test_a_wrong_command_line_exits_2_and_makes_no_store(outlast, words, message):
    answer = outlast("run", *words)
    assert answer.code == 2
    assert message in " ".join(answer.err.split())
    assert "\x1b" not in answer.err
    assert not outlast.db.exists()


def test_a_file_named_like_a_loaded_module_is_refused(outlast):
    (outlast.folder / "json.py").write_text("")
    answer = outlast("run", "json.py:w")
    assert answer.code == 2
    assert "Rename the file" in answer.err


@pytest.mark.parametrize(("command", "end"), [("run", ":w"), ("submit", ":w"), ("worker", "")])
def test_a_file_in_a_folder_that_one_may_not_enter_is_refused(outlast, monkeypatch, command, end):
    monkeypatch.chdir("/")
    assert (
        outlast(command, f"nowhere.py{end}").code == 2
    )  # now all is imported: libraries may be root's alone
    shut = outlast.folder / "shut"
    shut.mkdir(mode=0)
    with as_nobody():
        answer = outlast(command, f"{shut}/x.py{end}")
    shut.chmod(0o700)
    assert answer.code == 2
    assert "cannot be read: Permission denied." in " ".join(answer.err.split())


def test_a_name_that_no_file_can_have_is_refused(outlast):
    for name in ("x" * 300, f"{'x' * 300}.py"):
        assert outlast("run", f"{name}:w").code == 2


def test_an_error_in_the_program_shows_where_it_is(outlast):
    (outlast.folder / "broken.py").write_text("x = 1\nraise ValueError('\\x1b[31mred')\n")
    answer = outlast("run", "broken.py:w")
    assert answer.code == 1
    assert 'broken.py", line 2' in answer.err
    assert "importlib" not in answer.err
    assert "outlast: broken.py could not be imported: ValueError: \\e[31mred" in answer.err


def test_an_error_of_outlast_in_the_program_is_one_line(outlast):
    (outlast.folder / "broken.py").write_text(
        "from outlast import step\n\n@step(timeout=-1)\nasync def s(): ...\n"
    )
    answer = outlast("run", "broken.py:w")
    assert answer.code == 1
    assert len(answer.err.splitlines()) == 2  # the second says where it is explained


def test_a_program_that_ends_itself_when_imported_is_told_how_not_to(outlast):
    (outlast.folder / "eager.py").write_text("raise SystemExit(0)\n")
    answer = outlast("run", "eager.py:w")
    assert answer.code == 1
    assert "__main__" in answer.err


def test_a_store_that_cannot_be_used_exits_75(outlast, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.2")
    monkeypatch.setenv("OUTLAST_STORE", outlast.away)
    answer = outlast("run", "agent.py:echo", "--id", "r1")
    assert answer.code == 75
    assert "To continue: `outlast run agent.py:echo --id r1`" in answer.err


def test_arguments_that_no_store_has_yet_are_to_be_given_again(outlast, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.2")
    for words in (["tides"], ["--kwargs", '{"topic": "tides"}']):
        answer = outlast("run", "agent.py:report", *words, "--id", "r 1", "--store", outlast.away)
        assert answer.code == 75
        assert "To continue: the same command again, with --id 'r 1'." in answer.err


def test_a_memory_store_is_good_for_one_run(outlast):
    assert outlast("run", "agent.py:echo", "7", "--store", "memory:").out == "7\n"
