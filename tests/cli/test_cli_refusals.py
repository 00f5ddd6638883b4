"""Addresses that no waiting mends are refused at once, with 2 and what to write instead; a store that is away is waited for."""

import threading
import time

import pytest
from redis import Redis

from outlast import SettingsError, StoreUnavailable, run, step, workflow
from outlast.store.address import check_address, store_at
from outlast.store.file.store import FileStore
from outlast.testing import servers

PASSWORD = "S3cr3t-pw"


@step
async def once() -> int:
    return 1


@workflow
async def flow() -> int:
    return await once()


@pytest.mark.parametrize(
    ("address", "instead"),
    [
        ("sqlite:/data/o.db", "sqlite:////data/o.db"),
        ("sqlite:o.db", "sqlite:///o.db"),
        ("postgresql:agent", "postgresql:///database"),
        ("postgres:/agent", "postgres:///database"),
        ("redis:5", "redis://host:6379/0"),
        ("redis://h:99999/0", "from 1 to 65535"),
        ("postgresql://h:99999/d", "from 1 to 65535"),
    ],
)
def test_an_address_that_could_mean_two_things_is_refused_with_what_to_write(address, instead):
    with pytest.raises(SettingsError) as said:
        store_at(address)
    assert instead in str(said.value)
    if "9999" not in address:
        with pytest.raises(SettingsError):
            check_address(address)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("/postgres?", "/nowhere?", 'database "nowhere" does not exist'),
        ("postgres@", "nobody-here@", 'role "nobody-here" does not exist'),
        ("?", "?sslmode=bogus&", "sslmode"),
    ],
)
@pytest.mark.parametrize(
    "command", [("runs",), ("migrate",), ("run", "agent.py:report", "tides"), ("worker", "agent.py")]
)
def test_what_a_postgres_will_never_let_in_is_a_wrong_setting(
    outlast, postgres_server, old, new, says, command
):
    answer = outlast(*command, "--store", postgres_server.url.replace(old, new, 1))
    assert answer.code == 2, answer
    assert says in answer.err
    assert "resumable" not in answer.err


@pytest.mark.parametrize("command", [("runs",), ("migrate",), ("run", "agent.py:report", "tides")])
def test_what_a_redis_will_never_let_in_is_a_wrong_setting(outlast, tmp_path, command):
    with servers.redis_server(tmp_path) as server:
        with Redis.from_url(server.url) as client:
            client.config_set("requirepass", PASSWORD)
        for address, says in (
            (server.url, "password"),
            (server.url.replace("//", "//:wrong@", 1), "password"),
            (f"{server.url.replace('//', f'//:{PASSWORD}@', 1)}?db=99", "DB index is out of range"),
            (f"{server.url.replace('//', f'//:{PASSWORD}@', 1)}?strict=1", "REDIS_URL"),
        ):
            if "strict" in address and command[0] != "run":  # there is nothing to look at yet
                continue
            answer = outlast(*command, "--store", address)
            assert answer.code == 2, answer
            assert says in answer.err
            assert PASSWORD not in answer.err


def test_a_schema_that_is_not_there_is_told_from_one_of_another_release_and_named(
    outlast, postgres_server, monkeypatch
):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.2")
    answer = outlast(
        "run", "agent.py:report", "z", "--store", f"{postgres_server.url}&schema=three&migrate=no"
    )
    assert answer.code == 75
    assert "there is no schema three" in answer.err
    assert "&schema=three" in answer.err


def test_a_file_that_is_no_database_leaves_nothing_beside_it(outlast):
    (outlast.folder / "notes.txt").write_text("not a database, but long enough to have a header " * 9)
    before = sorted(outlast.folder.iterdir())
    for command in (("runs",), ("run", "agent.py:report", "tides")):
        answer = outlast(*command, "--store", f"sqlite:///{outlast.folder}/notes.txt")
        assert answer.code == 1
        assert "not a SQLite database" in answer.err
    assert [path for path in sorted(outlast.folder.iterdir()) if path.name != "__pycache__"] == before


def test_a_folder_that_may_not_be_looked_at_is_no_traceback(outlast, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("outlast.store.file.folder.os.listdir", refuse)
    for command in (("runs",), ("sessions",), ("migrate",)):
        answer = outlast(*command, "--json", "--store", f"file:{outlast.folder}/locked")
        assert answer.code == 75
        assert "access is not permitted" in answer.err
        assert answer.json["error"]


def test_a_command_that_only_looks_does_not_wait_for_a_store_that_is_away(outlast):
    begun = time.monotonic()
    answer = outlast("runs", "--store", "postgresql://u@127.0.0.1:1/db")
    assert answer.code == 75
    assert time.monotonic() - begun < 10


def test_opening_waits_for_another_process_to_leave_a_file_store(tmp_path, caplog):
    holder = FileStore(tmp_path / "state")
    holder.open()
    with pytest.raises(StoreUnavailable):
        run(flow(), id="r", store=f"file:{tmp_path}/state", store_patience=0.2)
    assert len([record for record in caplog.records if "waiting for the store" in record.getMessage()]) == 1
    threading.Timer(0.5, holder.close).start()
    assert run(flow(), id="r", store=f"file:{tmp_path}/state", store_patience=20.0) == 1


def test_opening_waits_for_a_server_that_is_started_later(tmp_path):
    with servers.redis_server(tmp_path) as server:
        server.stop()
        over = threading.Event()

        def later() -> None:
            time.sleep(0.5)
            server.start()  # and it ends with the thread that started it
            over.wait()

        thread = threading.Thread(target=later)
        thread.start()
        assert run(flow(), id="r", store=server.url, store_patience=20.0) == 1
        over.set()
        thread.join()


def test_a_migration_waits_for_another_process_to_leave_a_file_store(outlast, monkeypatch):
    address, holder = f"file:{outlast.folder}/state", FileStore(outlast.folder / "state")
    holder.open()
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.5")
    answer = outlast("migrate", "--store", address)
    assert answer.code == 75
    assert answer.err.count("waiting for the store, up to 0.5 s") == 1
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "20")
    threading.Timer(0.5, holder.close).start()
    assert outlast("migrate", "--store", address).code == 0


def test_a_server_that_is_full_is_pruned(outlast, tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.5")
    with servers.redis_server(tmp_path) as server, Redis.from_url(server.url) as client:
        assert outlast("run", "agent.py:report", "tides", "--id", "r1", "--store", server.url).code == 0
        client.config_set("maxmemory", 1)
        refused = outlast("submit", "agent.py:report", "z", "--store", server.url)
        assert refused.code == 75
        assert "outlast prune" in refused.err
        answer = outlast("prune", "--older-than", "0s", "--store", server.url)
        assert answer.code == 0, answer.err
        assert "deleted 1 run." in answer.err
