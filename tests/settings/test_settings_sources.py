"""The order of the sources of settings, and the names of their variables."""

import pytest
from settings_tools import found

from outlast import Outlast, SettingsError
from outlast.settings.load import load
from outlast.settings.origin import Kind


def test_each_source_wins_over_the_next(setenv, env_file, secret, monkeypatch):
    assert found("grace") == (30.0, "default")
    setenv(SHUTDOWN_TIMEOUT="40")
    assert found("grace") == (40.0, "SHUTDOWN_TIMEOUT")
    path = secret("outlast_grace", "50\n")
    assert found("grace") == (50.0, str(path))
    env_file("OUTLAST_GRACE=60")
    assert found("grace") == (60.0, "OUTLAST_GRACE in .env")
    setenv(OUTLAST_GRACE="70")
    assert found("grace") == (70.0, "OUTLAST_GRACE")
    assert found("grace", grace=80) == (80, "keyword")


def test_a_keyword_that_is_none_is_not_given(setenv):
    setenv(OUTLAST_GRACE="70")
    assert found("grace", grace=None) == (70.0, "OUTLAST_GRACE")


def test_an_empty_variable_is_not_set(setenv, env_file):
    setenv(
        OUTLAST_GRACE="",
        OUTLAST_STORE="",
        OUTLAST_HTTP=" ",
        DATABASE_URL="",
        REDIS_HOST="",
        SHUTDOWN_TIMEOUT="",
    )
    env_file("OUTLAST_LEASE=\nOUTLAST_HTTP=:8080\n")
    assert found("grace") == (30.0, "default")
    assert found("store") == ("sqlite:///outlast.db", "default")
    assert found("lease") == (30.0, "default")
    assert found("http") == (":8080", "OUTLAST_HTTP in .env")


def test_variables_are_case_insensitive_and_upper_case_wins(setenv):
    setenv(outlast_grace="9")
    assert found("grace") == (9.0, "OUTLAST_GRACE")
    setenv(OUTLAST_GRACE="8")
    assert found("grace") == (8.0, "OUTLAST_GRACE")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("OUTLAST_LEESE", "OUTLAST_LEASE"),
        ("OUTLAST_GRACE_SECONDS", "OUTLAST_GRACE"),
        ("OUTLAST_STORES", "OUTLAST_STORE"),
        ("outlast_stor", "OUTLAST_STORE"),
        ("OUTLAST_SECRET_DIR", "OUTLAST_SECRETS_DIR"),
        ("OUTLAST_STOR_FILE", "OUTLAST_STORE"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(setenv, name, near):
    setenv(**{name: "secret-value"})
    with pytest.raises(
        SettingsError, match=f"{name.upper()}: no such setting. Did you mean {near}"
    ) as raised:
        Outlast()
    assert "secret-value" not in str(raised.value)


def test_all_unknown_variables_are_named_in_one_error(setenv):
    setenv(OUTLAST_FROBNICATE="1", OUTLAST_LEESE="2")
    with pytest.raises(
        SettingsError, match=r"OUTLAST_FROBNICATE, OUTLAST_LEESE: .*Known: .*OUTLAST_GRACE"
    ):
        Outlast()


def test_an_unknown_variable_in_the_env_file_is_refused_too(env_file):
    env_file("OUTLAST_LEESE=3\n")
    with pytest.raises(SettingsError, match=r"OUTLAST_LEESE in \.env: .*OUTLAST_LEASE"):
        Outlast()


def test_service_variables_of_kubernetes_are_ignored(setenv):
    setenv(
        OUTLAST_SERVICE_HOST="10.0.0.1", OUTLAST_SERVICE_PORT="80", OUTLAST_SERVICE_PORT_HTTP="80",
        OUTLAST_PORT="tcp://10.0.0.1:80", OUTLAST_PORT_80_TCP="tcp://10.0.0.1:80", OUTLAST_PORT_80_TCP_PROTO="tcp",
        OUTLAST_PORT_80_TCP_PORT="80", OUTLAST_PORT_80_TCP_ADDR="10.0.0.1", OUTLAST_WEB_SERVICE_HOST="10.0.0.2",
        OUTLAST_WEB_PORT="udp://10.0.0.2:53",
    )  # fmt: skip
    assert set(load({}).origins.values()) == {(Kind.DEFAULT, "", "")}


def test_a_mistyped_port_variable_is_not_taken_for_a_kubernetes_link(setenv):
    setenv(OUTLAST_HTTP_PORT="8080")
    with pytest.raises(SettingsError, match="OUTLAST_HTTP_PORT"):
        Outlast()


def test_variables_of_the_tests_are_not_settings(setenv):
    setenv(OUTLAST_TEST_ANYTHING="1")
    Outlast()


def test_an_unknown_variable_without_a_near_name_lists_the_known_ones(setenv):
    setenv(OUTLAST_URL="x")
    with pytest.raises(SettingsError, match="Known: "):
        load({})
