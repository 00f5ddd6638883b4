"""A store of an older version: whoever looks or acts leaves it so, that the workers of that release may go on; `outlast migrate` brings it forward."""

import pytest

from outlast.store.address import store_at
from outlast.store.sqlite import store as sqlite

LOOKS = [
    ["runs"], ["show", "r1"], ["workers"], ["queues"], ["drains"], ["sessions"], ["chaos", "verify", "--since", "1h"], ["queues", "--watch"],
]  # fmt: skip
ACTS = [
    ["cancel", "r1"], ["retry", "r1"], ["resume", "r1"], ["send", "r1", "go", "1"], ["prune", "--older-than", "7d"], ["limit", "default", "--depth", "5"],
]  # fmt: skip


@pytest.fixture
def older(outlast, monkeypatch):
    scripts = sqlite._migrations()
    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "_migrations", lambda: scripts[:-1])
        store = store_at(outlast.address)
        store.open()
        store.close()
    return outlast, len(scripts)


@pytest.mark.parametrize("words", [*LOOKS, *ACTS], ids=lambda words: " ".join(words[:2]))
def test_it_is_left_as_it_is(older, words):
    outlast, ours = older
    before = outlast.db.read_bytes()
    answer = outlast(*words)
    assert answer.code == 1
    first, second = answer.err.splitlines()
    assert f"has version {ours - 1}, this Outlast {ours}. It is left as it is" in first
    assert "`outlast explain OlderStore`" in second
    assert (outlast.db.read_bytes(), store_at(outlast.address).versions()) == (before, (ours - 1, ours))


def test_migrate_brings_it_forward_and_then_it_is_shown(older):
    outlast, ours = older
    assert outlast("migrate").code == 0
    assert store_at(outlast.address).versions() == (ours, ours)
    assert outlast("runs").code == 0
