"""The files in the folder of a file store: what they contain, and who may read them."""

import json
import os
import stat

import pytest
from file_history import dump, opened, small_files, submit, write_history

from outlast.store.commands import (
    Ack,
    Append,
    Claim,
    DeleteSession,
    Prune,
    Record,
    RegisterWorker,
    Send,
    Settle,
    UpdateSession,
)
from outlast.store.rows import RunQuery
from outlast.testing.store_hooks import kill

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def store(tmp_path):
    store = opened(tmp_path / "store")
    yield store
    store.close()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def files(store):
    return sorted(
        path.relative_to(store.folder).as_posix()
        for path in store.folder.rglob("*")
        if path.is_file()
    )


def test_run_is_one_readable_journal(store):
    store.acquire_liveness("w")
    row = store.commit(
        [RegisterWorker("w", "host", 1, 60.0), submit("order-7", worker="w", args='["Zürich"]')]
    )[1].row
    store.commit(
        [
            Record(
                row.pk,
                1,
                row.fence,
                "step",
                "pay#1",
                5.0,
                value='{"paid": "12 €"}',
                cost='{"eur": 1}',
            )
        ]
    )
    store.commit(
        [Send("order-7", "note", "1", '"hello"'), Settle(row.pk, row.fence, "done", value='"fine"')]
    )
    run, entry, message, end = lines(store.folder / "runs/000/000001.jsonl")
    assert (run["insert"], run["row"]["id"], run["row"]["args"]) == ("runs", "order-7", ["Zürich"])
    assert (entry["insert"], entry["row"]["key"], entry["row"]["value"]) == (
        "entries",
        "pay#1",
        {"paid": "12 €"},
    )
    assert (message["insert"], message["row"]["value"]) == ("messages", "hello")
    assert end["update"] == "runs"
    assert {name: end["row"][name] for name in ("pk", "status", "value", "worker")} == {
        "pk": 1, "status": "done", "value": "fine", "worker": None,
    }  # fmt: skip
    assert "12 €" in (store.folder / "runs/000/000001.jsonl").read_text()


def test_session_is_one_journal_and_deleting_removes_it(store):
    store.commit(
        [
            UpdateSession(
                "user/../7", "t", {"name": '"Ada"'}, appends={"turns": Append(('"hi"', '"ho"'))}
            )
        ]
    )
    path = store.folder / "sessions/000/000001.jsonl"
    rows = [line["row"] for line in lines(path)]
    assert rows[0]["id"] == "user/../7"
    assert [row["value"] for row in rows if "number" in row] == ["hi", "ho"]
    store.commit([DeleteSession("user/../7", "t2")])
    assert not path.exists()
    assert (
        "Ada" not in (store.folder / "sessions/000/000002.jsonl").read_text()
    )  # its tokens, for a while
    store.commit([Prune(store.now() + 1, sessions=True)])
    assert [file for file in files(store) if file.startswith("sessions/")] == []


def test_queued_runs_and_items_share_a_file(store):
    store.commit([submit("later"), *(submit(f"i{n}", workflow="", queue="q") for n in range(5))])
    assert files(store) == ["commits.jsonl", "format", "lock", "runs/000.jsonl", "store.jsonl"]
    store.acquire_liveness("w")
    claimed = store.commit([RegisterWorker("w", "h", 1, 60.0), Claim("w", "c", limit=9)])[1]
    store.commit([Ack(row.pk, row.fence, "q") for row in claimed if row.workflow == ""])
    (run,) = [row for row in claimed if row.id == "later"]
    store.commit([Record(run.pk, 1, run.fence, "step", "a", 1.0)])
    assert [file for file in files(store) if file.startswith("runs/")] == [
        "runs/000.jsonl",
        "runs/000/000001.jsonl",
    ]
    assert [
        line["moved"] for line in lines(store.folder / "runs/000.jsonl") if "moved" in line
    ] == ["runs"]
    before = dump(store)
    kill(store)
    again = opened(store.folder)
    assert dump(again) == before
    again.close()


def test_pruned_runs_leave_no_file(store):
    store.acquire_liveness("w")
    runs = store.commit(
        [RegisterWorker("w", "h", 1, 60.0), *(submit(f"r{n}", worker="w") for n in range(3))]
    )[1:]
    store.commit([Record(out.row.pk, 1, out.row.fence, "step", "a", 1.0) for out in runs])
    store.commit([Settle(out.row.pk, out.row.fence, "done") for out in runs[:2]])
    assert sum(file.startswith("runs/000/") for file in files(store)) == 3
    assert store.commit([Prune(store.now() + 1)]) == [2]
    assert [file for file in files(store) if file.startswith("runs/000/")] == [
        "runs/000/000003.jsonl"
    ]
    kill(store)
    again = opened(store.folder)
    assert [row.id for row in again.runs(RunQuery())] == ["r2"]
    assert again.commit([submit("new")])[0].new
    assert again.run("new").pk == 4  # numbers are not given again
    again.close()


def test_many_runs_are_in_folders_of_a_thousand(store):
    store.acquire_liveness("w")
    store.commit([RegisterWorker("w", "h", 1, 60.0)])
    rows = [out.row for out in store.commit([submit(f"r{n}", worker="w") for n in range(2500)])]
    store.commit([Record(row.pk, 1, row.fence, "step", "a", 1.0) for row in rows])
    before = dump(store)
    store.close()
    folders = {
        path.name: len(list(path.iterdir()))
        for path in (store.folder / "runs").iterdir()
        if path.is_dir()
    }
    assert folders == {"000": 999, "001": 1000, "002": 501}
    again = opened(store.folder)
    assert dump(again) == before
    again.close()


HOSTILE = (
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "..",
    ".",
    "",
    "CON",
    "nul.txt",
    "a\\b",
    "x" * 5000,
    "\n",
    "\x00",
    "é\u202e",
    "-rf",
    "$(x)",
    "a:b?",
)


def test_no_id_is_ever_a_path(tmp_path):
    with small_files():
        store = opened(tmp_path / "store")
        store.acquire_liveness("w")
        store.commit([RegisterWorker("w", "../w/..", 1, 60.0, queues=HOSTILE)])
        outs = store.commit(
            [
                submit(id, worker="w", workflow="../" + id, queue=id, token=id, parent=id)
                for id in HOSTILE
            ]
        )
        for out in outs:
            store.commit(
                [
                    Record(
                        out.row.pk,
                        1,
                        out.row.fence,
                        "../kind",
                        out.row.id,
                        1.0,
                        value=json.dumps(out.row.id),
                    )
                ]
            )
            store.commit(
                [
                    Send(out.row.id, "../name", out.row.id, "1"),
                    UpdateSession(out.row.id, "t", {out.row.id: '"x"'}),
                ]
            )
        before = dump(store)
        kill(store)
        again = opened(tmp_path / "store")
        assert dump(again) == before
        again.close()
    names = {path.name for path in (tmp_path / "store").rglob("*")}
    assert all(
        name.strip("0123456789") in ("", ".jsonl")
        for name in names - {"store.jsonl", "commits.jsonl", "format", "lock", "runs", "sessions"}
    )
    assert {path.name for path in tmp_path.iterdir()} == {"store"}


def test_only_the_owner_may_read_the_files(tmp_path):
    before = os.umask(0)
    try:
        with small_files():
            store = opened(tmp_path / "store")
            write_history(store)
            store.close()
    finally:
        os.umask(before)
    modes = {
        stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "store").rglob("*")
        if path.is_file()
    }
    folders = {
        stat.S_IMODE(path.stat().st_mode)
        for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]
        if path.is_dir()
    }
    assert (modes, folders) == ({0o600}, {0o700})


def test_files_stay_short_after_many_small_changes(tmp_path):
    with small_files():
        store = opened(tmp_path / "store")
        store.acquire_liveness("w")
        for number in range(300):
            store.commit(
                [
                    RegisterWorker("w", "host", number, 60.0),
                    UpdateSession("s", f"t{number}", {"a": str(number)}),
                ]
            )
        before = dump(store)
        sizes = {path.name: path.stat().st_size for path in store.folder.rglob("*.jsonl")}
        assert max(sizes.values()) < 20_000
        kill(store)
        again = opened(tmp_path / "store")
        assert dump(again) == before
        again.close()
