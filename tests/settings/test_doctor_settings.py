"""`outlast doctor --settings`: what is in force and where it came from; and bad settings on the command line."""

import json
import os
import sys
from dataclasses import fields
from typing import NamedTuple

import pytest

from outlast.cli import main
from outlast.errors import SettingsError
from outlast.settings import Settings
from outlast.store.paths import making
from support.processes import Program


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def outlast(capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))

    def command(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            main(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Answer(int(exit.value.code or 0), out, err)

    yield command
    sys.modules.pop("agent", None)


def lines(answer):
    """By setting: its value and its source."""
    rows = [line.split(maxsplit=2) for line in answer.out.splitlines()]
    assert rows[0] == ["SETTING", "VALUE", "FROM"]
    return {name: (value, source) for name, value, source in rows[1:]}


def test_every_setting_is_listed_with_its_value_and_its_source(outlast, setenv, env_file, secret):
    path = secret("outlast_http_secret", "s3cr3t")
    env_file("OUTLAST_LEASE=20\n")
    setenv(OUTLAST_CONCURRENCY="7", SHUTDOWN_TIMEOUT="8", OUTLAST_STORE="sqlite:///x.db")
    answer = outlast("doctor", "--settings")
    assert answer.code == 0
    shown = lines(answer)
    assert list(shown) == [field.name for field in fields(Settings)]
    assert shown["store"] == ("sqlite:///x.db", "OUTLAST_STORE")
    assert shown["lease"] == ("20", "OUTLAST_LEASE in .env")
    assert shown["concurrency"] == ("7", "OUTLAST_CONCURRENCY")
    assert shown["grace"] == ("8", "SHUTDOWN_TIMEOUT")
    assert shown["checkpoint_reserve"] == ("2", "default, a quarter of grace at most")
    assert shown["http_secret"] == ("***", str(path))
    assert shown["http"] == ("-", "default")
    assert shown["poll"] == ("2", "default")
    assert "s3cr3t" not in answer.out + answer.err


def test_doctor_settings_prints_the_same_as_json(outlast, setenv, env_file, secret, tmp_path):
    path = secret("outlast_http_secret", "s3cr3t")
    env_file("OUTLAST_LEASE=20\n")
    setenv(OUTLAST_STORE="sqlite:///x.db")
    document = json.loads(outlast("doctor", "--settings", "--json").out)
    assert document["env_file"] == ".env"
    assert document["secrets_dir"] == str(tmp_path / "secrets")
    settings = document["settings"]
    assert list(settings) == [field.name for field in fields(Settings)]
    assert settings["store"] == {
        "value": "sqlite:///x.db", "from": "environment", "name": "OUTLAST_STORE", "place": None
    }  # fmt: skip
    assert settings["lease"] == {
        "value": 20.0,
        "from": "env file",
        "name": "OUTLAST_LEASE",
        "place": ".env",
    }
    assert settings["http_secret"] == {
        "value": "***",
        "from": "secret file",
        "name": str(path),
        "place": None,
    }
    assert settings["poll"] == {"value": 2.0, "from": "default", "name": None, "place": None}


def test_the_password_of_the_store_is_not_shown(outlast, setenv):
    setenv(OUTLAST_STORE="nosuch://u:s3cr3t@h/db")
    answer = outlast("doctor", "--settings")
    assert lines(answer)["store"] == ("nosuch://u:***@h/db", "OUTLAST_STORE")
    assert answer.code == 2
    assert "'nosuch://u:***@h/db' is not the address of a store" in answer.err
    for words in (
        ["doctor"],
        ["doctor", "--settings", "--json"],
        ["runs"],
        ["runs", "--json"],
        ["workers"],
    ):
        answer = outlast(*words)
        assert answer.code == 2
        assert "s3cr3t" not in answer.out + answer.err


def test_the_store_may_be_named_on_the_command_line(outlast, setenv):
    setenv(OUTLAST_STORE="nosuch://h")
    answer = outlast("doctor", "--settings", "--store", "memory:")
    assert answer.code == 0
    assert lines(answer)["store"] == ("memory:", "--store")


def test_without_an_option_it_says_what_it_has_checked(outlast, tmp_path):
    answer = outlast("doctor")
    assert answer.code == 0
    assert "lease" in answer.out
    assert "0 errors" in answer.err
    said = json.loads(outlast("doctor", "--json").out)
    assert said["ok"] is True
    assert {"lease", "grace", "store"} <= {one["check"] for one in said["findings"]}
    assert list(tmp_path.iterdir()) == [], "a store that is not there is not made"


def test_doctor_settings_creates_no_file(outlast, tmp_path):
    assert outlast("doctor", "--settings").code == 0
    assert list(tmp_path.iterdir()) == []


def test_doctor_shows_which_variable_named_the_store(outlast, setenv, tmp_path):
    setenv(STATE_DB_PATH="state.db")
    answer = outlast("doctor", "--settings")
    assert lines(answer)["store"] == ("sqlite:///state.db", "STATE_DB_PATH")


@pytest.mark.parametrize(
    "words",
    [
        ["doctor"], ["doctor", "--settings"], ["runs"], ["show", "r1"], ["cancel", "r1"], ["workers"], ["queues"], ["drain"], ["drains"],
        ["prune", "--older-than", "7d"], ["limit", "default"], ["run", "agent.py:w"], ["submit", "agent.py:w"], ["worker", "agent.py"],
        ["send", "r1", "go"], ["retry", "r1"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
@pytest.mark.parametrize(
    "bad",
    [{"OUTLAST_LEESE": "3"}, {"OUTLAST_GRACE": "0.1"}, {"OUTLAST_LEASE": "soon"}],
    ids=lambda bad: next(iter(bad)),
)
def test_a_bad_setting_is_a_usage_error_of_every_command(outlast, setenv, tmp_path, words, bad):
    (tmp_path / "agent.py").write_text(
        "from outlast import workflow\n@workflow\nasync def w(): ...\n"
    )
    setenv(**bad)
    answer = outlast(*words)
    assert answer.code == 2, answer.err
    assert next(iter(bad)) in answer.err
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".db"] == []


IMPOSSIBLE = [
    *(
        f"sqlite:///{path}"
        for path in ("folder", "file/x.db", "file/deep/x.db", "x" * 300, "loop/x.db", "pipe")
    ),
    *(f"file:{path}" for path in ("file", "file/x", "x" * 300, "loop/x", "pipe")),
]


@pytest.mark.parametrize("store", IMPOSSIBLE, ids=lambda store: store[:30])
@pytest.mark.parametrize(
    "words", [["runs"], ["run", "agent.py:w"], ["submit", "agent.py:w"], ["worker", "agent.py"], ["retry", "r1"], ["doctor"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_path_at_which_no_store_can_be_is_a_usage_error(outlast, tmp_path, store, words):
    """Not 75: the same command again would never go on."""
    (tmp_path / "agent.py").write_text(
        "from outlast import workflow\n@workflow\nasync def w(): ...\n"
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    answer = outlast(*words, "--store", store)
    assert answer.code == 2, answer.err
    assert "the store cannot be at" in answer.err


def test_a_folder_that_takes_no_other_one_is_a_setting_too(tmp_path):
    """As /proc does: it is there, and what is made in it is not found."""
    with pytest.raises(SettingsError, match="the store cannot be at"), making(tmp_path / "x.db"):
        (tmp_path / "gone" / "x.db.d").mkdir()


@pytest.mark.parametrize(
    "words",
    [
        ["run", "agent.py:w"],
        ["submit", "agent.py:w"],
        ["runs"],
        ["workers"],
        ["drains"],
        ["doctor"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_says_once_which_store_it_found(outlast, setenv, tmp_path, words, caplog):
    (tmp_path / "agent.py").write_text(
        "from outlast import workflow\n@workflow\nasync def w(): ...\n"
    )
    assert outlast("submit", "agent.py:w", "--store", "sqlite:///state.db").code == 0
    assert caplog.records == []
    sys.modules.pop("agent", None)
    setenv(STATE_DB_PATH="state.db")
    assert outlast(*words).code == 0
    assert [record.name for record in caplog.records].count("outlast.settings") == 1


def test_a_hint_does_not_repeat_a_password():
    from outlast.cli.hints import command

    assert (
        command("show", "r1", store="redis://:s3cr3t@h/0")
        == "`outlast show r1 --store 'redis://:***@h/0'`"
    )


def test_a_worker_says_in_its_own_log_which_store_it_found(setenv, tmp_path):
    (tmp_path / "agent.py").write_text(
        "from outlast import workflow\n@workflow\nasync def w(): ...\n"
    )
    setenv(STATE_DB_PATH="state.db")
    command = [sys.executable, "-m", "outlast", "worker", "agent.py", "--log", "json"]
    with Program(command, tmp_path, env=os.environ) as worker:
        lines = worker.wait_until(
            lambda: lines if len(lines := worker.errors.splitlines()) > 1 else []
        )
        first, second = map(json.loads, lines[:2])
    assert first["logger"] == "outlast.settings"
    assert "STATE_DB_PATH" in first["message"]
    assert (second["event"], second["store"]) == ("working", "state.db")
