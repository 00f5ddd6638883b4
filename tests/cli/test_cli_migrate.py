"""`outlast migrate`, and that looking at a store which is not there makes none: on every store that processes share, and on files."""

import sqlite3
from contextlib import closing

import pytest

from outlast.store.address import store_at
from support.stores import a_place

KINDS = ("sqlite", "postgres", "redis", "file")


@pytest.fixture(params=KINDS)
def address(request, tmp_path):
    with a_place(request, request.param, tmp_path) as address:
        yield address


def test_looking_at_a_store_that_is_not_there_makes_none(outlast, address):
    said = outlast("runs", "--store", address)
    assert said.code == 1
    assert "there is no store at" in said.err
    there, known = store_at(address).versions()
    assert (there, known > 0) == (0, True)


def test_a_store_is_made_and_then_found_to_be_as_it_should(outlast, address, tmp_path):
    said = outlast("migrate", "--store", address, "--json")
    assert said.code == 0, said.out + said.err
    assert not list(tmp_path.glob("**/*-wal")), (
        "what is left belongs to the user that migrates, not to the worker"
    )
    there, known = store_at(address).versions()
    assert there == known
    assert said.json["before"] == 0
    assert said.json["version"] == known
    again = outlast("migrate", "--store", address)
    assert again.code == 0, again.err
    assert f"its schema is already version {known}." in " ".join(again.err.split())
    assert outlast("runs", "--store", address).code == 0


def test_the_statements_are_printed_for_postgres_only(outlast, address):
    said = outlast("migrate", "--store", address, "--sql")
    if address.startswith("postgres"):
        assert said.code == 0
        assert "CREATE TABLE" in said.out
    else:
        assert said.code == 2
        assert "--sql is for Postgres" in said.out + said.err
    assert store_at(address).versions()[0] == 0


def test_database_of_another_program_is_refused_and_unchanged(outlast, tmp_path):
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        db.execute("CREATE TABLE notes (note)")
    before = (tmp_path / "other.db").read_bytes()
    for words in (["migrate"], ["runs"]):
        said = outlast(*words, "--store", f"sqlite:///{tmp_path}/other.db")
        assert said.code != 0
        assert "was not created by Outlast" in said.out + said.err
    assert (tmp_path / "other.db").read_bytes() == before
