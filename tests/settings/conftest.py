import os

import pytest

from outlast.settings.third_party_env import GRACE, STORES

OTHERS = (GRACE, *STORES, "REDIS_PORT", "REDIS_PASSWORD", "REDIS_DB")


@pytest.fixture(autouse=True)
def nothing_set(tmp_path, monkeypatch):
    """An empty working folder, and an environment that says nothing of Outlast; files of secrets only where a test names them."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("OUTLAST_") or name in OTHERS:
            monkeypatch.delenv(name)
    monkeypatch.setenv("OUTLAST_SECRETS_DIR", "")


@pytest.fixture
def setenv(monkeypatch):
    def set_all(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.fixture
def env_file(tmp_path):
    return lambda text, name=".env": (tmp_path / name).write_text(text)


@pytest.fixture
def secret(tmp_path, monkeypatch):
    """Puts a file into the folder of secrets."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    monkeypatch.setenv("OUTLAST_SECRETS_DIR", str(folder))

    def put(name, content):
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put
