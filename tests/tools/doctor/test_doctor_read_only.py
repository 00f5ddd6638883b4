"""`outlast doctor` of a user who may only read the store: no error, and everything that can be seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from outlast.store.address import store_at
from outlast.store.commands import Submit
from outlast.testing import servers
from support.cli import answer_in

# Root may write everything, until it gives up the capability to: then modes count for it as for any owner.
AS_ANY_OWNER = """
import ctypes, os, sys
if os.geteuid() == 0:
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP
os.execv(sys.executable, [sys.executable, "-m", "outlast", *sys.argv[1:]])
"""
READ_ONLY = "This user has read-only access"


def fill(address: str) -> None:
    with closing(store_at(address)) as store:
        store.open()
        store.commit([Submit("r1", "flow", "[]", "t", "seed", delay=86_400.0)])


def doctor(address: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Return the exit code, and the level and text of each finding by its check."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    done = subprocess.run(
        [sys.executable, "-c", AS_ANY_OWNER, "doctor", "--json", "--store", address],
        env=env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, by_check(json.loads(done.stdout))


def by_check(document: dict) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for one in document["findings"]:
        found.setdefault(one["check"], []).append((one["level"], one["what"]))
    return found


@pytest.fixture
def place(tmp_path):
    """A folder for a store; afterwards it can be removed."""
    folder = tmp_path / "place"
    folder.mkdir()
    yield folder
    for one in [folder, *folder.rglob("*")]:
        one.chmod(0o700)


def close_to_writers(folder: Path) -> None:
    for one in [folder, *folder.rglob("*")]:
        one.chmod(0o550 if one.is_dir() else 0o440)


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_a_store_that_this_user_may_only_read_is_examined_without_an_error(place, scheme):
    address = f"{scheme}:///{place}/outlast"
    fill(address)
    close_to_writers(place)
    code, found = doctor(address)
    assert found["store"][0][0] == "note"
    assert READ_ONLY in found["store"][0][1]
    assert ("ok", "no run is parked, dead or stuck; 0 ready, 1 delayed.") in found["runs"]
    assert not [one for several in found.values() for one in several if one[0] == "error"], found
    assert code == 0
    if found["filesystem"][0][0] == "ok":  # not where the tests write to a file system in memory
        assert "read-only for this user" in found["filesystem"][0][1]


def test_a_database_that_can_be_written_in_a_folder_that_cannot_stays_an_error(place):
    address = f"sqlite:///{place}/outlast.db"
    fill(address)
    place.chmod(0o550)
    code, found = doctor(address)
    assert "error" in [level for level, _ in found["filesystem"]]
    assert code == 1


@pytest.fixture(scope="module")
def reader():
    """The address of a role that may only SELECT, on a server that is durable."""
    with servers.postgres_server(durable=True) as server:
        fill(server.url)
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(
                "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA outlast TO reader; "
                "GRANT SELECT ON ALL TABLES IN SCHEMA outlast TO reader"
            )
        yield f"{server.url.replace('postgres@', 'reader@')}&schema_owner=postgres"


@pytest.mark.parametrize(
    "option", ["", "&migrate=no", "&options=-cdefault_transaction_read_only%3Don"]
)
def test_a_role_that_may_only_read_gets_no_error(tmp_path, capsys, reader, option):
    answer = answer_in(tmp_path, ["doctor", "--json", "--store", f"{reader}{option}"], capsys)
    found = by_check(answer.json)
    assert answer.code == 0, found
    assert found["store"][0][0] == "note"
    assert READ_ONLY in found["store"][0][1]
    assert [level for level, _ in found["postgres"]] == ["ok"]
    assert ("ok", "no run is parked, dead or stuck; 0 ready, 1 delayed.") in found["runs"]


def test_a_server_that_takes_no_writes_stays_an_error_for_a_role_that_may_write(
    tmp_path, capsys, reader
):
    owner = reader.replace("reader@", "postgres@")
    read_only = f"{owner}&options=-cdefault_transaction_read_only%3Don"
    answer = answer_in(tmp_path, ["doctor", "--json", "--store", read_only], capsys)
    assert answer.code == 1
    assert "error" in [level for level, _ in by_check(answer.json)["postgres"]]
