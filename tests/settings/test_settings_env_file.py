"""Settings in a `.env` file."""

import subprocess
import sys

import pytest
from settings_tools import found

from outlast import Outlast, SettingsError
from outlast.settings.load import load


def test_an_env_file_has_comments_quotes_and_exports(env_file):
    env_file(
        "# a comment\n\n"
        "export OUTLAST_GRACE=40   # in seconds\n"
        "OUTLAST_STORE='sqlite:///a b#c.db'\n"
        'OUTLAST_HTTP_SECRET="two words"\n'
        "  OUTLAST_QUEUES = default,mail \r\n"
    )
    settings = load({}).settings
    assert settings.grace == 40
    assert settings.store == "sqlite:///a b#c.db"
    assert settings.http_secret == "two words"
    assert settings.queues == "default,mail"


def test_other_variables_in_the_env_file_are_ignored(env_file):
    env_file(
        "DATABASE_URL=postgresql://u@h/db\nOPENAI_API_KEY=x\nREDIS_HOST=r\nSHUTDOWN_TIMEOUT=9\nthis is no line\nOUTLAST_LEASE=20\n"
    )
    assert found("store") == ("sqlite:///outlast.db", "default")
    assert found("grace") == (30.0, "default")
    assert found("lease") == (20.0, "OUTLAST_LEASE in .env")


def test_a_variable_names_another_env_file_or_turns_it_off(env_file, setenv):
    env_file("OUTLAST_GRACE=40")
    env_file("OUTLAST_GRACE=50", "other.env")
    setenv(OUTLAST_ENV_FILE="other.env")
    assert found("grace") == (50.0, "OUTLAST_GRACE in other.env")
    setenv(OUTLAST_ENV_FILE="")
    assert found("grace") == (30.0, "default")


def test_variables_that_name_files_are_case_insensitive(
    env_file, setenv, secret, monkeypatch, tmp_path
):
    env_file("OUTLAST_GRACE=40")
    env_file("OUTLAST_GRACE=50", "other.env")
    setenv(outlast_env_file="other.env")
    assert found("grace") == (50.0, "OUTLAST_GRACE in other.env")
    setenv(OUTLAST_ENV_FILE="")
    path = secret("outlast_grace", "60")
    monkeypatch.delenv("OUTLAST_SECRETS_DIR")
    setenv(outlast_secrets_dir=str(path.parent))
    assert found("grace") == (60.0, str(path))


def test_a_named_env_file_must_exist(setenv):
    setenv(OUTLAST_ENV_FILE="missing.env")
    with pytest.raises(
        SettingsError, match=r"missing\.env cannot be read .*OUTLAST_ENV_FILE names it"
    ):
        Outlast()


def test_only_the_env_file_of_the_working_folder_is_read(env_file, tmp_path, monkeypatch):
    env_file("OUTLAST_GRACE=40")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert found("grace") == (30.0, "default")


def test_a_folder_called_env_is_not_read_as_an_env_file(tmp_path):
    (tmp_path / ".env").mkdir()
    assert found("grace") == (30.0, "default")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("OUTLAST_GRACE\n", "OUTLAST_GRACE in .env has no value"),
        ("X=1\nOUTLAST_STORE='sqlite:///x.db\n", "line 2"),
        ("OUTLAST_ENV_FILE=other.env\n", "has no effect"),
        ("OUTLAST_GRACE=soon\n", r"^OUTLAST_GRACE='soon' \(in .env\) is not a number"),
        ("OUTLAST_GRACE=0.1\n", "grace is from OUTLAST_GRACE in .env"),
    ],
)
def test_errors_in_an_env_file_name_the_place(env_file, text, says):
    env_file(text)
    with pytest.raises(SettingsError, match=says):
        Outlast()


def test_an_env_file_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / ".env").write_bytes(b"OUTLAST_GRACE=\xff\xfe")
    with pytest.raises(SettingsError, match="not UTF-8"):
        Outlast()


def test_an_env_file_may_start_with_a_byte_order_mark(tmp_path):
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfOUTLAST_GRACE=40\r\n")
    assert found("grace") == (40.0, "OUTLAST_GRACE in .env")


@pytest.mark.parametrize(
    ("text", "loaded"), [("OTHER=1\n", "False"), ("OUTLAST_GRACE=40\n", "True")]
)
def test_dotenv_is_imported_only_if_the_env_file_has_a_setting(env_file, text, loaded):
    env_file(text)
    code = "import sys; from outlast import Outlast; Outlast(); print('dotenv' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout == f"{loaded}\n"
