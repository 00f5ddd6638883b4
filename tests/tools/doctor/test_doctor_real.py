"""The doctor on what is really there: this machine's processes and mounts, stores, servers, workers."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from outlast.settings.load import load
from outlast.store.sqlite import migrate
from outlast.tools.doctor.facts import gather
from outlast.tools.doctor.host import ancestry, mount_of, process
from support.cli import Answer, answer_in
from support.waiting import WAIT_SECONDS, wait_until

FLOWS = """
from outlast import step, workflow

@step
async def nap() -> None: ...

@workflow
async def idle() -> None:
    await nap()
"""


@pytest.fixture
def outlast(tmp_path, capsys):
    """Typed in the test's folder."""

    def call(*words: object, **env: str) -> Answer:
        answer = answer_in(tmp_path, words, capsys, **env)
        assert "Traceback" not in answer.err
        return answer

    return call


@pytest.fixture
def doctor(outlast):
    def call(*words: object, **env: str) -> tuple[int, dict]:
        answer = outlast("doctor", "--json", *words, **env)
        return answer.code, answer.json

    return call


def by_check(answer: dict) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in answer["findings"]:
        found.setdefault(one["check"], []).append(one["level"])
    return found


@pytest.fixture
def worker(tmp_path):
    """`outlast worker`, started by these words in front."""
    (tmp_path / "flows.py").write_text(FLOWS)
    started = []

    def start(*before: str, **env: str):
        line = [
            sys.executable,
            "-m",
            "outlast",
            "worker",
            "flows.py",
            "--store",
            "sqlite:///x.db",
            "--log",
            "json",
        ]
        process = subprocess.Popen([*before, *line], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}, start_new_session=True)  # fmt: skip
        started.append(process)
        while '"event": "working"' not in (said := process.stderr.readline()):
            assert said, "it ended"
        return process

    yield start
    for one in started:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


def test_a_store_with_a_worker_is_in_order(tmp_path, worker, doctor):
    worker()
    code, answer = doctor("--store", "sqlite:///x.db")
    found = by_check(answer)
    assert found["signals"] == ["ok"], answer
    assert found["workers"] == ["ok"]
    assert found["runs"] == ["ok"]
    assert (code, answer["ok"]) == (0, True)


def test_worker_that_ignores_sigterm_is_reported(tmp_path, worker, doctor):
    worker("sh", "-c", 'trap "" TERM; exec "$@"', "sh")
    code, answer = doctor("--store", "sqlite:///x.db")
    assert by_check(answer)["signals"] == ["error"]
    assert (code, answer["ok"]) == (1, False)


def test_no_store_is_made_by_looking(tmp_path, doctor):
    code, answer = doctor("--store", "sqlite:///none.db")
    assert code == 0, answer
    assert by_check(answer)["store"] == ["note"]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written():
    """To root everything can be, so the question is asked as another user where the tests are root's."""
    folder = Path(
        tempfile.mkdtemp(prefix="outlast-closed-")
    )  # pytest's own folders are closed to that user
    (folder / "shut").mkdir(mode=0o600)
    folder.chmod(0o555)
    code = f"""
import os
from outlast.tools.doctor.store_folder import store_folder
from outlast.store.address import store_at
store, under = store_at("sqlite:///{folder}/x.db"), store_at("sqlite:///{folder}/shut/in/x.db")  # everything is imported: the libraries may be root's alone
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
print(store_folder(store).writable, store_folder(under).writable)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    (folder / "shut").rmdir()
    folder.rmdir()
    assert done.stdout.strip() == "False False", done.stderr


def test_a_link_leads_to_where_the_store_is(tmp_path, monkeypatch):
    from outlast.store.address import store_at
    from outlast.tools.doctor import store_folder
    from outlast.tools.doctor.host import Mount

    monkeypatch.setattr(store_folder, "mount_of", lambda path: Mount(str(path), "ext4", "x"))
    (tmp_path / "away").mkdir()
    (tmp_path / "x.db").symlink_to(tmp_path / "away" / "x.db")
    found = store_folder.store_folder(store_at(f"sqlite:///{tmp_path}/x.db"))
    assert found.mount.point == str((tmp_path / "away").resolve())


def test_strict_counts_warnings(tmp_path, doctor):
    calm, _ = doctor("--store", "sqlite:///none.db", OUTLAST_HTTP="0.0.0.0:8080")
    strict, answer = doctor("--store", "sqlite:///none.db", "--strict", OUTLAST_HTTP="0.0.0.0:8080")
    assert (calm, strict) == (0, 1)
    assert by_check(answer)["http"] == ["warning"]


def test_a_wrong_setting_ends_with_2(tmp_path, doctor):
    code, answer = doctor(OUTLAST_GRAZE="1")
    assert code == 2
    assert "OUTLAST_GRACE" in answer["error"]["message"]
    code, answer = doctor("--settings", "--manifest", "x.yaml")
    assert code == 2


def test_postgres_says_what_it_can_lose(tmp_path, postgres_server, doctor):
    found = gather(load({"store": postgres_server.url}, {}))
    assert found.server["fsync"] == "off", "this test's server never waits for the disk"
    assert abs(found.server["skew"]) < 5
    code, answer = doctor("--store", postgres_server.url)
    assert "error" in by_check(answer)["postgres"]
    assert code == 1


def test_redis_says_what_it_can_lose(tmp_path, redis_server, doctor):
    code, answer = doctor("--store", redis_server.url)
    assert "error" in by_check(answer)["redis"], "this test's server keeps nothing on the disk"
    assert code == 1


@pytest.mark.parametrize(
    "address", ["unix:///nowhere/none.sock", "postgresql://u:hush@127.0.0.1:1/x"]
)
def test_a_store_that_cannot_be_reached_is_an_error(tmp_path, address, doctor):
    code, answer = doctor("--store", address)
    assert (code, answer["ok"]) == (1, False)
    assert by_check(answer)["store"] == ["error"]
    assert "hush" not in json.dumps(answer)


def digests(folder: Path) -> dict[str, bytes]:
    """Return the content of a store's files, without SQLite's log and the file that names the log in use."""
    return {
        str(one): one.read_bytes()
        for one in sorted(folder.rglob("*"))
        if one.is_file() and one.suffix in (".db", ".jsonl", "") and one.name != "files"
    }


@pytest.fixture
def made(tmp_path, outlast):
    """A store with a run in it."""

    def make(address: str) -> None:
        (tmp_path / "flows.py").write_text(FLOWS)
        assert outlast("run", "flows.py:idle", "--store", address).code == 0

    return make


@pytest.mark.parametrize("address", ["sqlite:///s/x.db", "file:///{}/s/folder"])
def test_nothing_is_changed_by_looking(tmp_path, address, made, doctor):
    address = address.format(str(tmp_path).lstrip("/"))
    (tmp_path / "s").mkdir()
    made(address)
    before = digests(tmp_path / "s")
    code, answer = doctor("--store", address)
    assert (code, by_check(answer)["runs"]) == (0, ["ok"])
    assert digests(tmp_path / "s") == before


def test_a_file_store_is_left_to_the_process_that_has_it(tmp_path, made, doctor):
    made(f"file://{tmp_path}/folder")
    from outlast.store.address import store_at

    store = store_at(f"file://{tmp_path}/folder")
    store.open()
    try:
        code, answer = doctor("--store", f"file://{tmp_path}/folder")
    finally:
        store.close()
    assert (code, by_check(answer)["store"]) == (0, ["note"])
    (one,) = [one for one in answer["findings"] if one["check"] == "store"]
    assert "one has it open" in one["what"]


def test_older_schema_is_reported_and_not_migrated(tmp_path, made, doctor, monkeypatch):
    made("sqlite:///x.db")
    older = migrate.version()
    scripts = [*migrate.migrations(), "ALTER TABLE runs ADD COLUMN mood TEXT;"]
    monkeypatch.setattr(migrate, "migrations", lambda: scripts)
    code, answer = doctor("--store", "sqlite:///x.db")
    (one,) = [one for one in answer["findings"] if one["check"] == "store"]
    assert (code, one["level"], "outlast migrate" in one["what"]) == (0, "note", True)
    db = sqlite3.connect(tmp_path / "x.db")
    assert db.execute("PRAGMA user_version").fetchone() == (older,)
    db.close()


@pytest.mark.parametrize("damage", ["newer", "broken"])
def test_a_store_that_is_not_for_us_is_an_error(tmp_path, damage, made, doctor):
    import sqlite3

    if damage == "broken":
        (tmp_path / "x.db").write_text("this is no database, and never was one")
    else:
        made("sqlite:///x.db")
        db = sqlite3.connect(tmp_path / "x.db")
        db.execute("PRAGMA user_version = 999")
        db.close()
    code, answer = doctor("--store", "sqlite:///x.db")
    assert (code, by_check(answer)["store"]) == (1, ["error"])


def test_a_pid_that_another_process_has_now_is_no_worker(tmp_path, worker, doctor):
    process = worker()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: by_check(doctor("--store", "sqlite:///x.db")[1])["workers"] == ["warning"])
    import sqlite3

    db = sqlite3.connect(tmp_path / "x.db")
    db.execute("UPDATE workers SET pid = ?", (os.getpid(),))
    db.commit()
    db.close()
    code, answer = doctor("--store", "sqlite:///x.db")
    assert (code, by_check(answer)["signals"]) == (0, ["note"]), answer


def test_this_process_and_its_parents():
    chain = ancestry(os.getpid())
    assert chain[0].pid == os.getpid()
    assert [one.pid for one in chain][1] == os.getppid()
    assert chain[-1].parent == 0
    assert process(2**30) is None


def test_the_last_and_longest_mount_counts(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 0:1 / / rw - overlay overlay rw\n"
        "2 1 0:2 / /data rw - ext4 /dev/sda rw\n"
        "3 1 0:3 / /data rw - nfs4 srv:/x rw\n"
        f"4 1 0:4 / {str(tmp_path).replace(' ', chr(92) + '040')} rw - xfs /dev/sdb rw\n"
        "nonsense\n"
    )
    assert mount_of(Path("/data/deep/er"), table).kind == "nfs4"
    assert mount_of(Path("/database"), table).kind == "overlay"
    assert mount_of(tmp_path, table).kind == "xfs"
    assert mount_of(tmp_path, tmp_path / "none") is None


def test_unknown_workflows_and_long_steps_are_reported(tmp_path, worker, outlast, doctor):
    from outlast.store.address import store_at
    from outlast.store.commands import RecordDurations

    process = worker()
    other = tmp_path / "other.py"
    other.write_text(
        "from outlast import workflow\n\n@workflow\nasync def stranger() -> None: ...\n"
    )
    assert outlast("submit", "other.py:stranger", "--store", "sqlite:///x.db").code == 0
    store = store_at(f"sqlite:///{tmp_path}/x.db")
    store.open()
    store.commit([RecordDurations(tuple(("idle", "nap", 500.0) for _ in range(6)))])
    store.close()
    _, answer = doctor("--store", "sqlite:///x.db")
    said = {one["check"]: one["what"] for one in answer["findings"] if one["level"] == "warning"}
    assert "stranger" in said["runs"]
    assert "nap of idle" in said["steps"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(
        lambda: (
            by_check(doctor("--store", "sqlite:///x.db")[1])["workers"] == ["warning", "warning"]
        ),
        "it seems dead, and nobody else claims",
    )
