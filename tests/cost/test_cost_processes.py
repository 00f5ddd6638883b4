"""kill -9: what was recorded is not paid for again, what was under way is, and the numbers say so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.replay.account import Account
from outlast.store.address import store_at
from outlast.store.protocol import whole_journal

PROGRAM = Path(__file__).parent / "programs" / "talk.py"
TURNS, TOKENS = 6, 100


def start(folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(PROGRAM), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    )


def paid(process: subprocess.Popen, until: int | None = None) -> tuple[list[int], str]:
    """The turns that it paid for, up to one; and its result."""
    turns: list[int] = []
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("result "):
            return turns, line.split()[1]
        turns.append(int(line))
        if turns[-1] == until:
            break
    return turns, ""


def account(folder: Path) -> Account:
    store = store_at(f"sqlite:///{folder / 'outlast.db'}")
    store.open()
    try:
        row = store.run("talk")
        assert row is not None
        return Account(whole_journal(store, row.pk))
    finally:
        store.close()


@pytest.mark.parametrize("kills", [[0], [1], [3], [2, 4], [1, 1, 5]])
def test_nothing_recorded_is_paid_for_twice_and_the_sums_are_right(tmp_path, kills):
    bought: list[int] = []
    saved = 0
    for until in kills:
        with start(tmp_path) as process:
            turns, result = paid(process, until)
            process.kill()
        assert not result
        bought += turns
        saved += account(tmp_path).kept.document().get("tokens", 0)
    with start(tmp_path) as process:
        turns, result = paid(process)
    assert (process.returncode, result) == (0, str(sum(range(TURNS))))
    bought += turns
    found = account(tmp_path)
    assert found.spent.document() == {"tokens": TURNS * TOKENS, "usd": 0.6, "searches": TURNS / 2}
    assert found.saved.document().get("tokens", 0) == saved
    assert sorted(set(bought)) == list(range(TURNS))
    assert len(bought) <= TURNS + len(kills), "one turn a death, at the most, was paid for and not recorded"
    shown = subprocess.run(
        [sys.executable, "-m", "outlast", "show", "talk", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )  # fmt: skip
    assert json.loads(shown.stdout)["cost"]["saved"] == found.saved.document()
