"""After SIGKILL the model is paid again only for the call that was under way, and the sums say so."""

from pathlib import Path

from outlast.execution.run_cost import RunCost
from outlast.store.address import store_at
from outlast.store.protocol import whole_journal
from support.cli import answer_in
from support.processes import Program

PROGRAM = Path(__file__).parent / "programs" / "talk.py"
TURNS, TOKENS = 6, 100
KILLED_AT = [1, 1, 5]
"""The turns at which the process is killed: the same one twice, and the last."""


def paid_turns(process: Program) -> list[int]:
    return [int(line) for line in process.lines if not line.startswith("result ")]


def account(folder: Path) -> RunCost:
    store = store_at(f"sqlite:///{folder / 'outlast.db'}")
    store.open()
    try:
        row = store.run("talk")
        assert row is not None
        return RunCost(whole_journal(store, row.pk))
    finally:
        store.close()


def test_recorded_calls_are_not_paid_again_after_sigkill(tmp_path, capsys):
    paid: list[int] = []
    saved = 0
    for turn in KILLED_AT:
        with Program.python(PROGRAM, tmp_path, turn, folder=tmp_path) as process:
            process.wait_for_line(str(turn))
            process.kill()
        paid += paid_turns(process)
        saved += account(tmp_path).kept.document().get("tokens", 0)
    with Program.python(PROGRAM, tmp_path, folder=tmp_path) as process:
        assert process.wait() == 0, process.describe()
    assert process.lines[-1] == f"result {sum(range(TURNS))}"
    paid += paid_turns(process)
    found = account(tmp_path)
    assert found.spent.document() == {"tokens": TURNS * TOKENS, "usd": 0.6, "searches": TURNS / 2}
    assert found.saved.document().get("tokens", 0) == saved
    assert sorted(paid) == sorted([*range(TURNS), *KILLED_AT]), (
        "only the call under way is paid again"
    )
    shown = answer_in(tmp_path, ["show", "talk", "--json"], capsys)
    assert shown.json["cost"]["saved"] == found.saved.document()
