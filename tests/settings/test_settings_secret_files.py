"""Settings in files of their own, named by a variable or kept in a folder of secrets."""

import os

import pytest
from settings_tools import found

from outlast import Outlast, SettingsError
from outlast.settings.load import load
from outlast.settings.origin import Kind


def test_a_secret_file_is_read_without_its_last_newline(secret):
    path = secret("outlast_http_secret", "hush hush\r\n")
    assert found("http_secret") == ("hush hush", str(path))
    secret("OUTLAST_STORE", "postgresql://u:p@h/db")
    assert found("store")[0] == "postgresql://u:p@h/db"


def test_other_files_in_the_secrets_folder_are_not_read(secret, tmp_path):
    secret("store", "sqlite:///wrong.db")
    (tmp_path / "secrets" / "kubernetes.io").mkdir()
    (tmp_path / "secrets" / "outlast_lease").mkdir()
    assert set(load({}).origins.values()) == {(Kind.DEFAULT, "", "")}


def test_a_misnamed_secret_file_is_refused_with_the_nearest_name(
    secret, monkeypatch, tmp_path, caplog
):
    secret("outlast_stor", "postgresql://u:hush@h/db")
    with pytest.raises(
        SettingsError, match=r"outlast_stor in .*: no such setting. Did you mean OUTLAST_STORE\?"
    ) as said:
        load({})
    assert "hush" not in str(said.value)
    monkeypatch.delenv("OUTLAST_SECRETS_DIR")
    monkeypatch.setattr("outlast.settings.files.DEFAULT_FOLDER", tmp_path / "secrets")
    load({})  # where nobody has named the folder, others may have theirs in it
    assert "no such setting" in caplog.text


def test_a_secrets_folder_that_cannot_be_listed_is_refused(secret, monkeypatch):
    secret("outlast_store", "memory:")

    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.iterdir", refuse)
    with pytest.raises(SettingsError, match="cannot be listed"):
        load({})


def test_a_variable_may_name_the_file_of_one_setting(setenv, env_file, tmp_path):
    (tmp_path / "pw").write_text("redis://:pw@h/0\n")
    setenv(OUTLAST_STORE_FILE=str(tmp_path / "pw"))
    assert found("store") == ("redis://:pw@h/0", f"{tmp_path}/pw (OUTLAST_STORE_FILE)")
    env_file(f"OUTLAST_HTTP_SECRET_FILE={tmp_path}/pw\n")
    setenv(OUTLAST_ENV_FILE=".env")
    assert found("http_secret") == (
        "redis://:pw@h/0",
        f"{tmp_path}/pw (OUTLAST_HTTP_SECRET_FILE in .env)",
    )


def test_the_file_of_a_setting_given_as_keyword_is_not_read(setenv):
    setenv(OUTLAST_STORE_FILE="/nonexistent")
    assert found("store", store="memory:") == ("memory:", "keyword")


def test_a_named_file_wins_over_the_secrets_folder(secret, setenv, tmp_path):
    secret("outlast_grace", "40")
    (tmp_path / "grace").write_text("50")
    setenv(OUTLAST_GRACE_FILE=str(tmp_path / "grace"))
    assert found("grace")[0] == 50


def test_a_setting_and_its_file_exclude_each_other(setenv, env_file, tmp_path):
    (tmp_path / "grace").write_text("50")
    env_file("OUTLAST_GRACE=40")
    setenv(OUTLAST_GRACE_FILE=str(tmp_path / "grace"))
    with pytest.raises(
        SettingsError, match=r"OUTLAST_GRACE in \.env and OUTLAST_GRACE_FILE are both set"
    ):
        Outlast()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"), (b"\n", "is empty"), (b"\xff", "not UTF-8"), (b"x" * 70_000, "more than 65,536 bytes"),
        (b"s3cr3t", "is not a number"), (b"-5", "and not negative"),
    ],
)  # fmt: skip
def test_an_invalid_secret_file_is_refused_without_its_content(secret, content, says):
    path = secret("outlast_lease", content)
    with pytest.raises(SettingsError, match=says) as raised:
        Outlast()
    assert str(path) in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("name", ["OUTLAST_SECRETS_DIR", "OUTLAST_STORE_FILE"])
def test_named_files_and_folders_must_exist(setenv, name, tmp_path):
    setenv(**{name: str(tmp_path / "missing")})
    with pytest.raises(SettingsError, match=rf"{name}.*missing|missing.*{name}"):
        Outlast()


@pytest.mark.parametrize("name", ["OUTLAST_ENV_FILE", "OUTLAST_STORE_FILE"])
def test_a_pipe_in_place_of_a_file_is_refused(setenv, name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    setenv(**{name: str(tmp_path / "pipe")})
    with pytest.raises(SettingsError, match=r"pipe.*not a regular file"):
        Outlast()
