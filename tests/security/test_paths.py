"""Ids, names and queues never become part of a path."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from outlast.store.address import store_at
from outlast.store.commands import (
    CHECKPOINT,
    Append,
    Claim,
    Record,
    RecordDurations,
    RegisterWorker,
    SaveProgress,
    Send,
    Settle,
    Submit,
    UpdateSession,
)
from outlast.testing.conformance.harness import ManualClock

HOSTILE = (
    "../../../../etc/cron.d/x", "/etc/passwd", "..", ".", "~/x", "~root", "C:\\x", "\\\\host\\share", "a/../b", "a\x00b", "%2e%2e%2f", "CON", "x" * 400, "-rf",
    "$(touch x)", "`touch x`", "a\nb", "format", "lock", "commits.jsonl", "outlast.db-wal",
)  # fmt: skip
HARMLESS = tuple(f"harmless{number}" for number in range(len(HOSTILE)))


def written(folder: Path, scheme: str, ids: tuple[str, ...]) -> set[str]:
    """Everything that a store can be given a name for, and the paths that there are then. Lock files of workers have ids of Outlast's own."""
    folder.mkdir()
    place = folder / "deep" / "inside"
    address = f"file://{place}/store" if scheme == "file" else f"sqlite:///{place}/outlast.db"
    for _ in range(2):  # what is read back by the next process makes no path either
        store = store_at(address, clock=ManualClock())
        store.open()
        with closing(store):
            for id in ids:
                row = store.commit(
                    [
                        RegisterWorker("w", "host", 1, 1e6),
                        Submit(id, id, "{}", id, "00" * 16, id, worker="w"),
                    ]
                )[1].row
                if row is None or row.worker is None:
                    store.commit([Claim("w", id, (id,))])
                    continue
                store.commit(
                    [
                        Record(row.pk, 1, row.fence, "step", id, 1.0, value="1"),
                        SaveProgress(row.pk, row.fence, id, 1, "1"),
                        Send(id, id, id, "1"),
                        UpdateSession(id, id, {id: "1"}, appends={f"{id}2": Append(("1",))}),
                        UpdateSession(id, id, {id: "1"}, space=CHECKPOINT),
                        RecordDurations(((id, id, 1.0),)),
                        Settle(row.pk, row.fence, "done", value="1"),
                    ]
                )
    return {
        re.sub(r"notify-\w+", "notify", str(path.relative_to(folder))) for path in folder.rglob("*")
    }


@pytest.mark.parametrize("scheme", ["file", "sqlite"])
def test_hostile_ids_make_the_same_files_as_harmless_ones(tmp_path, scheme) -> None:
    found = written(tmp_path / "one", scheme, HOSTILE)
    assert found == written(tmp_path / "two", scheme, HARMLESS)
    assert len(found) > 4
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}


def test_file_store_uses_only_numbers_and_fixed_words_as_names(tmp_path) -> None:
    names = {Path(path).name for path in written(tmp_path / "one", "file", HOSTILE)}
    assert {name for name in names if not re.fullmatch(r"\d+(\.jsonl)?", name)} <= {
        "deep", "inside", "store", "lock", "format", "runs", "sessions", "commits.jsonl", "commits.old.jsonl", "store.jsonl",
    }  # fmt: skip
