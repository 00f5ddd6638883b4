"""Wrong addresses are refused at once. A store that is away is waited for."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from outlast import SettingsError, StoreUnavailable, run, step, workflow
from outlast.cli import stores
from outlast.store.address import check_address, store_at
from outlast.store.file.store import FileStore
from outlast.testing import servers
from support.waiting import WAIT_SECONDS

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
def test_ambiguous_store_address_is_refused(address, instead):
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
    "command",
    [("runs",), ("migrate",), ("run", "agent.py:report", "tides"), ("worker", "agent.py")],
)
def test_permanent_postgres_refusal_exits_2(outlast, postgres_server, old, new, says, command):
    answer = outlast(*command, "--store", postgres_server.url.replace(old, new, 1))
    assert answer.code == 2, answer
    assert says in answer.err
    assert "resumable" not in answer.err


def test_permanent_redis_refusal_exits_2(outlast, tmp_path):
    with servers.redis_server(tmp_path) as server:
        with Redis.from_url(server.url) as client:
            client.config_set("requirepass", PASSWORD)
        known = server.url.replace("//", f"//:{PASSWORD}@", 1)
        for command in (("runs",), ("migrate",), ("run", "agent.py:report", "tides")):
            for address, says in (
                (server.url, "password"),
                (server.url.replace("//", "//:wrong@", 1), "password"),
                (f"{known}?db=99", "DB index is out of range"),
                (f"{known}?strict=1", "REDIS_URL"),
            ):
                if "strict" in address and command[0] != "run":  # there is nothing to look at yet
                    continue
                answer = outlast(*command, "--store", address)
                assert answer.code == 2, answer
                assert says in answer.err
                assert PASSWORD not in answer.err


def test_missing_postgres_schema_is_named(outlast, postgres_server, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.2")
    answer = outlast(
        "run", "agent.py:report", "z", "--store", f"{postgres_server.url}&schema=three&migrate=no"
    )
    assert answer.code == 75
    assert "there is no schema three" in answer.err
    assert "&schema=three" in answer.err


def test_opening_a_non_database_creates_no_files(outlast):
    (outlast.folder / "notes.txt").write_text(
        "not a database, but long enough to have a header " * 9
    )
    before = sorted(outlast.folder.iterdir())
    for command in (("runs",), ("run", "agent.py:report", "tides")):
        answer = outlast(*command, "--store", f"sqlite:///{outlast.folder}/notes.txt")
        assert answer.code == 1
        assert "not a SQLite database" in answer.err
    assert [
        path for path in sorted(outlast.folder.iterdir()) if path.name != "__pycache__"
    ] == before


def test_unreadable_folder_prints_no_traceback(outlast, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("outlast.store.file.folder.os.listdir", refuse)
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.2")
    for command in (("runs",), ("sessions",), ("migrate",)):
        answer = outlast(*command, "--json", "--store", f"file:{outlast.folder}/locked")
        assert answer.code == 75
        assert "access is not permitted" in answer.err
        assert answer.json["error"]


def test_read_only_command_does_not_wait_for_the_store(outlast, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "3600")
    answer = outlast("runs", "--store", "postgresql://u@127.0.0.1:1/db")
    assert answer.code == 75
    assert "waiting for the store" not in answer.err


@contextmanager
def when_it_waits(action: Callable[[], object]) -> Iterator[list[str]]:
    """Do this when an app first logs that it waits for the store, and yield the lines that say so."""
    lines: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "waiting for the store" in record.getMessage():
                lines.append(record.getMessage())
                action()

    handler, log = Listening(), logging.getLogger("outlast")
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)


def test_open_waits_for_a_locked_file_store(tmp_path):
    holder, address = FileStore(tmp_path / "state"), f"file:{tmp_path}/state"
    holder.open()
    with pytest.raises(StoreUnavailable):
        run(flow(), id="r", store=address, store_patience=0.2)
    with when_it_waits(holder.close) as lines:
        assert run(flow(), id="r", store=address, store_patience=WAIT_SECONDS) == 1
    assert len(lines) == 1


def test_open_waits_for_a_server_to_start(tmp_path):
    with servers.redis_server(tmp_path) as server:
        server.stop()
        with when_it_waits(server.start) as lines:
            assert run(flow(), id="r", store=server.url, store_patience=WAIT_SECONDS) == 1
        assert len(lines) == 1


def test_migrate_waits_for_a_locked_file_store(outlast, monkeypatch):
    address, holder = f"file:{outlast.folder}/state", FileStore(outlast.folder / "state")
    holder.open()
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.2")
    assert outlast("migrate", "--store", address).code == 75
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", str(WAIT_SECONDS))
    print_message = stores.print_message
    monkeypatch.setattr(stores, "print_message", lambda text: (print_message(text), holder.close()))
    answer = outlast("migrate", "--store", address)
    assert answer.code == 0
    assert answer.err.count(f"waiting for the store, up to {WAIT_SECONDS:g} s") == 1


def test_prune_works_on_a_full_server(outlast, tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.5")
    with servers.redis_server(tmp_path) as server, Redis.from_url(server.url) as client:
        assert (
            outlast("run", "agent.py:report", "tides", "--id", "r1", "--store", server.url).code
            == 0
        )
        client.config_set("maxmemory", 1)
        refused = outlast("submit", "agent.py:report", "z", "--store", server.url)
        assert refused.code == 75
        assert "outlast prune" in refused.err
        answer = outlast("prune", "--older-than", "0s", "--store", server.url)
        assert answer.code == 0, answer.err
        assert "deleted 1 run." in answer.err
