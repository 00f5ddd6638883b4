"""Power cuts, approximated: the files as they are at one moment, with and without what no fsync had promised yet.

All threads of the program are stopped while its files are copied: no copy of a file that is being written is an image that
a crash could leave.
"""

import shutil
import signal
import sqlite3
import struct
import time

from process_tools import Log, Program, autopsy, chance, copy_store, until

IMAGES = 12
RESULT = 12 * 1500 + 2 * 1500 + 1  # block 10 and 11 have two digits


def end_of_log(wal: bytes) -> int:
    """Where the committed frames of a write-ahead log end: what is behind was never acknowledged."""
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
    """Whole, its journals without gaps (`autopsy` sees to both), and nothing that was acknowledged is missing."""
    recorded = image.recorded()
    for line in acknowledged:
        if line.when == "step":
            assert (line.run, line.key) in recorded, line
        elif line.when == "end":
            assert image.runs[line.run]["status"] == "done", line
        else:
            assert line.run in image.runs, line


def test_an_image_of_the_files_at_any_moment_holds_everything_acknowledged(spawn, tmp_path):
    rng, log, db = chance("images"), Log(tmp_path), tmp_path / "outlast.db"
    program = spawn("busy.py")
    until(log.update)
    for _ in range(IMAGES):
        time.sleep(rng.uniform(0, 0.25))  # the moment itself: nothing is waited for
        program.stop()
        check(autopsy(db), list(log.update()))
        program.signal(signal.SIGCONT)
    program.kill()
    print(f"{len(log.lines)} acknowledgements, {db.stat().st_size // 1024} kB")
    assert sum(line.when == "end" for line in log.lines) > 0


def test_what_no_fsync_had_promised_may_be_lost_and_nothing_else_is(spawn, tmp_path):
    rng, log, db = chance("torn"), Log(tmp_path), tmp_path / "outlast.db"
    wal = db.with_name("outlast.db-wal")
    program, torn, bytes_lost = spawn("busy.py"), 0, 0
    until(log.update)
    deadline = time.monotonic() + 20
    while torn < IMAGES and time.monotonic() < deadline:
        time.sleep(rng.uniform(0, 0.1))
        program.stop()
        promised, pages, start = list(log.update()), db.read_bytes(), wal.read_bytes()
        program.signal(signal.SIGCONT)
        time.sleep(rng.uniform(0, 0.02))
        program.stop()
        if db.read_bytes() == pages and wal.read_bytes()[:32] == start[:32]:  # no checkpoint in between
            torn += 1
            bytes_lost += tear(rng, db, end_of_log(start), tmp_path / f"torn-{torn}", promised)
        program.signal(signal.SIGCONT)
    program.kill()
    print(f"{torn} torn images, {bytes_lost // 1024} kB of unpromised log lost in them")
    assert torn == IMAGES


def tear(rng, db, promised_end, folder, acknowledged) -> int:
    """A copy whose log is cut, or garbled, at a random place behind what was promised."""
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
    check(autopsy(copy), acknowledged)
    shutil.rmtree(folder)
    return lost


def test_the_runs_of_an_image_go_on_to_their_right_end(spawn, tmp_path):
    rng, log = chance("resumed"), Log(tmp_path)
    program = spawn("busy.py")
    until(lambda: len(log.update()) > 100)
    time.sleep(rng.uniform(0, 0.3))
    program.stop()
    folder = tmp_path / "image"
    folder.mkdir()
    copy = copy_store(tmp_path / "outlast.db", folder)
    program.kill()
    held = [id for id, run in autopsy(copy).runs.items() if run["status"] != "done"]
    resumed = Program("busy.py", folder, "resume")
    try:
        assert resumed.result() == [RESULT] * len(held)
    finally:
        resumed.kill()
    after = autopsy(copy)
    assert {(run["status"], run["value"]) for run in after.runs.values()} == {("done", str(RESULT))}
    assert sorted(id for id, _ in after.deaths()) == sorted(held), "their worker's lease ran out"
    connection = sqlite3.connect(copy)
    assert connection.execute("SELECT count(*) FROM messages").fetchone() == (len(after.runs),)
    connection.close()
