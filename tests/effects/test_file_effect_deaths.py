"""A writer that dies at any line or moment leaves a whole file, and it is known whether it was written."""

import json
import os
import tempfile
import threading
import time
from pathlib import Path

import pytest
from file_tools import left, start

from outlast.effects import (
    file,
)
from support.seeds import seeded_random

OURS = "ours " * 50


LONG = "OUTLAST_TEST_KILLS" in os.environ


linux = pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")


# -- the end at every line


@pytest.fixture
def memory_path():
    """Thousands of deaths: what is synced need not go to a disk for that."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


def deaths(tmp_path: Path, **options: object) -> list[dict]:
    """Return what was seen after each death.

    A killed process dies at every line, or with `make test` at those that leave other files than the line
    before. A process that is stopped goes on from every line.
    """
    options["changes"] = not LONG and options["how"] == "kill"
    program = start("file_deaths.py", tmp_path, json.dumps(options))
    assert program.wait() == 0, program.errors
    *seen, end = program.messages
    assert end["lines"] > 25
    assert len(seen) > 3 if options["changes"] else len(seen) == end["lines"]
    return seen


OTHER = "somebody else's"


@pytest.mark.parametrize(
    ("before", "other"),
    [("it was so", None), (None, OTHER), *([(None, None), ("it was so", OTHER)] if LONG else [])],
)
def test_file_is_whole_after_a_kill_at_any_line_of_a_write(memory_path, before, other):
    for seen in deaths(memory_path, at="write", how="kill", before=before, other=other):
        assert seen["died"] in (before, OURS), seen
        assert seen["happened"] is (seen["died"] == OURS), seen
        if other is None or not seen["happened"]:
            assert seen["inherited"] == OURS, seen
            assert seen["undone"] == seen["undone again"] == (other or before), seen
        else:
            assert seen["inherited"] == seen["undone"] == seen["undone again"] == other, seen
        assert [
            name for name in seen["left"] if not name.startswith(".") and ".tmp." not in name
        ] == [], seen
        assert len(seen["left"]) <= 1, (
            "at most the content of an attempt that died before it was named"
        )


@pytest.mark.parametrize(
    ("before", "other"),
    [("it was so", None), (None, OTHER), (OURS, None)]
    + ([("it was so", OTHER), (None, None), (OURS, OTHER)] if LONG else []),
)
def test_file_is_restored_once_after_a_kill_at_any_line_of_undo(memory_path, before, other):
    for seen in deaths(memory_path, at="undo", how="kill", before=before, other=other):
        assert seen["died"] in (before, OURS), seen
        assert seen["undone again"] == (before if other is None else other), seen
        assert seen["left"] == [], seen
        if before is not None and other is None:
            assert seen["mode"] == "0o640"


@linux
def test_stopped_writer_writes_nothing_after_a_takeover(memory_path):
    held_up = 0
    for seen in deaths(memory_path, at="write", how="stop", before="it was so"):
        assert seen["inherited"] == OURS, seen
        assert seen["woken"] == "newer", f"an old writer wrote over a new one: {seen}"
        if "held up" in seen:
            held_up += 1
            assert "Check for a stopped or frozen worker" in seen["held up"]
            assert seen["went on"] == 0, "nobody had overtaken it"
        else:
            assert seen["went on"] == (0 if seen["died"] == OURS else 1), seen
    assert held_up > 3


# -- the end at any moment


def test_confirmed_writes_survive_random_kills(tmp_path):
    rng, path, last, kills = seeded_random("file kills"), tmp_path / "file", 0, 60 if LONG else 4
    stop, torn, sizes = threading.Event(), [], set()

    def read() -> None:
        while not stop.is_set():
            if path.exists():
                text = path.read_text()
                number, _, _ = text.partition(" ")
                sizes.add(len(text))
                if text != f"{number} " * 20_000 + "end":
                    torn.append(text[:40])
            time.sleep(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(kills):
            writer, written = start("file_loop.py", tmp_path, path, last + 1), rng.randrange(1, 8)
            writer.wait_until(lambda: len(writer.messages) >= written)
            time.sleep(rng.uniform(0, 0.02))
            writer.kill()
            said, there = writer.messages[-1], int(path.read_text().partition(" ")[0])
            assert there in (said, said + 1), "what was said is there, or the next one"
            last = there
    finally:
        stop.set()
        reader.join()
    assert torn == []


def test_concurrent_writers_leave_one_whole_content(tmp_path):
    path = tmp_path / "file"
    texts = {n: f"{n} " * 5000 for n in range(16)}

    def write(n: int) -> None:
        file.write(str(path), texts[n].encode(), key=f"k{n}", fence=1)

    threads = [threading.Thread(target=write, args=(n,)) for n in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts.values()
    assert all(file.happened(str(path), key=f"k{n}", fence=1) for n in texts)
    assert len(left(tmp_path)) == 15, "each but the first has kept what was before it"
    for n in texts:
        file.undo(str(path), key=f"k{n}", fence=1)
    assert left(tmp_path) == []
