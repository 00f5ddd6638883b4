"""The address of a store is checked before the app is opened."""

import pytest

from outlast import Outlast, SettingsError


def test_address_of_no_store_is_refused_when_the_app_is_made(monkeypatch):
    with pytest.raises(SettingsError, match="'mysql://host/db' is not the address of a store"):
        Outlast("mysql://host/db")
    monkeypatch.setenv("OUTLAST_STORE", "mysql://host/db")
    with pytest.raises(SettingsError, match="'mysql://host/db' is not the address of a store"):
        Outlast()


def test_address_that_another_program_uses_is_no_error(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", "mysql://host/db")
    assert Outlast().settings.store == "sqlite:///outlast.db"
