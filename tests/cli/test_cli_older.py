"""Commands leave a store of an older version as it is, so that its workers continue. Only `outlast migrate` changes it."""

import pytest

from outlast.store.address import store_at
from outlast.store.commands import SetQueueLimits
from outlast.store.protocol import OlderStore
from outlast.store.sqlite import migrate

LOOKS = [
    ["runs"], ["show", "r1"], ["workers"], ["queues"], ["drains"], ["sessions"], ["chaos", "verify", "--since", "1h"], ["queues", "--watch"],
]  # fmt: skip
ACTS = [
    ["cancel", "r1"], ["retry", "r1"], ["resume", "r1"], ["send", "r1", "go", "1"], ["prune", "--older-than", "7d"], ["limit", "default", "--depth", "5"],
]  # fmt: skip


@pytest.fixture
def older(outlast, monkeypatch):
    made_before(outlast.address, monkeypatch)
    return outlast, migrate.version()


def made_before(address, monkeypatch):
    """Create a store, and make this release one with one more migration."""
    store = store_at(address)
    store.open()
    store.commit([SetQueueLimits("default", 1, None)])
    store.close()
    scripts = [*migrate.migrations(), "ALTER TABLE runs ADD COLUMN mood TEXT;"]
    monkeypatch.setattr(migrate, "migrations", lambda: scripts)


@pytest.mark.parametrize("words", [*LOOKS, *ACTS], ids=lambda words: " ".join(words[:2]))
def test_commands_leave_an_older_store_unchanged(older, words):
    outlast, ours = older
    before = outlast.db.read_bytes()
    answer = outlast(*words)
    assert answer.code == 1
    first, second = answer.err.splitlines()
    assert (
        f"has schema version {ours - 1}, and this Outlast has {ours}. It was not migrated" in first
    )
    assert "`outlast explain OlderStore`" in second
    assert (outlast.db.read_bytes(), store_at(outlast.address).versions()) == (
        before,
        (ours - 1, ours),
    )


def test_migrate_upgrades_an_older_store(older):
    outlast, ours = older
    assert outlast("migrate").code == 0
    assert store_at(outlast.address).versions() == (ours, ours)
    assert outlast("runs").code == 0


def test_older_store_is_refused_at_open(older):
    """Behave as where another program holds a lock and is waited for."""
    outlast, ours = older
    store = store_at(outlast.address)
    store.migrates = False
    with pytest.raises(OlderStore, match=f"has schema version {ours - 1}"):
        store.open()
    assert store.versions() == (ours - 1, ours)


def test_commands_leave_an_older_file_store_unchanged(outlast, monkeypatch):
    address, folder = f"file://{outlast.folder / 'files'}", outlast.folder / "files"
    made_before(address, monkeypatch)
    before = (folder / "store.jsonl").read_bytes()
    for words in (["runs"], ["prune", "--older-than", "7d"]):
        answer = outlast(*words, "--store", address)
        assert (answer.code, "OlderStore" in answer.err) == (1, True)
    looking = store_at(address)
    looking.migrates = False
    with pytest.raises(OlderStore):
        looking.open()
    looking.close()
    assert (folder / "store.jsonl").read_bytes() == before
    ours = migrate.version()
    migrated = outlast("migrate", "--store", address)
    assert f"its schema was migrated from version {ours - 1} to {ours}" in migrated.err
    assert outlast("runs", "--store", address).code == 0
