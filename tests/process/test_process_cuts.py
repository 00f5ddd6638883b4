"""Approximate power cuts: copy the files at one moment, with and without writes that no fsync has confirmed.

All threads of the program are paused while its files are copied. A copy of a file that is being written would
not be an image that a crash can leave.
"""

import os
import shutil
import sqlite3
import struct
import time

from process_tools import Program

from outlast.settings.settings import Settings
from support.clocks import MovableClock, let_lease_run_out
from support.outside_log import OutsideLog
from support.seeds import seeded_random
from support.snapshots import copy_store, read_dead_store

IMAGES = 24 if "OUTLAST_TEST_KILLS" in os.environ else 5
DEFAULT_LEASE = Settings().lease
RESULT = 12 * 1500 + 2 * 1500 + 1  # block 10 and 11 have two digits


def end_of_log(wal: bytes) -> int:
    """Return where the committed frames of a write-ahead log end."""
    if len(wal) < 32:
        return 0
    page = struct.unpack(">I", wal[8:12])[0]
    salts, end = wal[16:24], 32
    for offset in range(32, len(wal) - page - 23, page + 24):
        if wal[offset + 8 : offset + 16] != salts:
            break
        if struct.unpack(">I", wal[offset + 4 : offset + 8])[0]:
            end = offset + 24 + page
    return end


def check(image, acknowledged) -> None:
    """Fail if something that was acknowledged is missing. `read_dead_store` checks the file and its journals."""
    recorded = image.recorded()
    for line in acknowledged:
        if line.when == "step":
            assert (line.run, line.key) in recorded, line
        elif line.when == "end":
            assert image.runs[line.run]["status"] == "done", line
        else:
            assert line.run in image.runs, line


def test_image_at_any_moment_holds_everything_acknowledged(spawn, tmp_path):
    rng, log, db = seeded_random("images"), OutsideLog(tmp_path), tmp_path / "outlast.db"
    program = spawn("busy.py")
    program.wait_until(log.update)
    for _ in range(IMAGES):
        time.sleep(rng.uniform(0, 0.1))  # a random moment
        program.pause()
        check(read_dead_store(db), list(log.update()))
        program.resume()
    program.wait_until(lambda: any(line.when == "end" for line in log.update()))
    program.kill()
    print(f"{len(log.lines)} acknowledgements, {db.stat().st_size // 1024} kB")


def test_only_writes_without_fsync_are_lost_in_a_torn_log(spawn, tmp_path):
    rng, log, db = seeded_random("torn"), OutsideLog(tmp_path), tmp_path / "outlast.db"
    wal = db.with_name("outlast.db-wal")
    program, torn, bytes_lost = spawn("busy.py"), 0, 0
    program.wait_until(log.update)
    while torn < IMAGES:
        time.sleep(rng.uniform(0, 0.1))  # a random moment
        program.pause()
        promised, pages, start = list(log.update()), db.read_bytes(), wal.read_bytes()
        program.resume()
        time.sleep(rng.uniform(0, 0.02))
        program.pause()
        if (
            db.read_bytes() == pages and wal.read_bytes()[:32] == start[:32]
        ):  # no checkpoint in between
            torn += 1
            bytes_lost += tear(rng, db, end_of_log(start), tmp_path / f"torn-{torn}", promised)
        program.resume()
    program.kill()
    print(f"{torn} torn images, {bytes_lost // 1024} kB of unconfirmed log lost")


def tear(rng, db, promised_end, folder, acknowledged) -> int:
    """Check a copy whose log is cut or garbled at a random place behind what was confirmed."""
    folder.mkdir()
    copy = copy_store(db, folder)
    log = copy.with_name(copy.name + "-wal")
    content = bytearray(log.read_bytes())
    cut = rng.randint(promised_end, max(promised_end, end_of_log(bytes(content))))
    lost = max(0, end_of_log(bytes(content)) - cut)
    if rng.random() < 0.5:
        del content[cut:]
    else:
        content[cut:] = rng.randbytes(len(content) - cut)
    log.write_bytes(content)
    check(read_dead_store(copy), acknowledged)
    shutil.rmtree(folder)
    return lost


def test_runs_of_an_image_continue_to_their_result(spawn, tmp_path):
    rng, log = seeded_random("resumed"), OutsideLog(tmp_path)
    program = spawn("busy.py")
    program.wait_until(lambda: len(log.update()) > 100)
    time.sleep(rng.uniform(0, 0.3))
    program.pause()
    folder = tmp_path / "image"
    folder.mkdir()
    copy = copy_store(tmp_path / "outlast.db", folder)
    program.kill()
    held = [id for id, run in read_dead_store(copy).runs.items() if run["status"] != "done"]
    # An image has no lock files, so the lease must run out before the runs are taken over.
    let_lease_run_out(f"sqlite:///{copy}", MovableClock(folder), DEFAULT_LEASE)
    with Program("busy.py", folder, "resume") as resumed:
        assert resumed.result() == [RESULT] * len(held)
    after = read_dead_store(copy)
    assert {(run["status"], run["value"]) for run in after.runs.values()} == {("done", str(RESULT))}
    assert sorted(id for id, _ in after.deaths()) == sorted(held)
    connection = sqlite3.connect(copy)
    assert connection.execute("SELECT count(*) FROM messages").fetchone() == (len(after.runs),)
    connection.close()
