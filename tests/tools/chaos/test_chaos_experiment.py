"""Test `outlast chaos` with real workers: it kills them and checks what is left. `make chaos` is the long form."""

import json
import os
import shutil
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest
from chaos_tools import EXPERIMENT_SECONDS, PROGRAMS, alarms, chaos, check_of, command, processes_of

from outlast.cli import main
from outlast.store.address import store_at
from outlast.store.commands import Cancel, RegisterWorker, Submit
from outlast.store.rows import RunQuery
from outlast.testing.servers import redis_server
from outlast.tools.chaos import command as cli
from outlast.tools.chaos.store_setup import set_up_store
from outlast.tools.chaos.view import Lines, Screen
from support.processes import Program
from support.stores import peek
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(EXPERIMENT_SECONDS + 300)


def rows(path: Path) -> list[str]:
    db = peek(f"sqlite:///{path}")
    try:
        return list(db.iterdump())
    finally:
        db.close()


def test_experiment_with_every_fault_loses_and_repeats_nothing(tmp_path):
    code, report, said = chaos(
        tmp_path, "--seconds", 5, "--seed", 1542, "--workers", 2, "--concurrency", 6, "--rate", 3, "--kills-per-minute", 60, "--grace", 30,
        "--lease", 2, "--objective", 600,
    )  # fmt: skip
    assert alarms(report) == {}, said
    assert (code, report["outcome"], report["passed"], report["seed"]) == (0, "ok", True, 1542)
    # On a slow machine a fault finds no worker that works, and is missed.
    assert set(report["faults"]["by_kind"]) <= {"term", "kill", "stop", "rolling", "fleet"}
    assert sum(report["faults"]["processes"].values()) > 0
    looked_at = report["verdict"]["looked_at"]
    assert looked_at["runs"] > 5 and looked_at["items"] > 0 and looked_at["ledger_lines"] > 20
    statuses = check_of(report, "ended")["facts"]["statuses"]
    assert set(statuses) <= {"done", "failed", "cancelled"}
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Passed" in page and "seed 1542" in page
    assert json.loads((tmp_path / "report" / "report.json").read_text()) == report
    verified_without_a_trace(tmp_path / "report" / "chaos.db")


def verified_without_a_trace(path: Path) -> None:
    """Check that `outlast chaos verify` finds no fault, and does not change the store.

    It does not know which workers the experiment killed. A worker that was killed while it drained looks like
    a drain that failed.
    """
    before, files = rows(path), path.read_bytes()
    words = command(
        "verify", "--since", "1h", "--thorough", "--json", "--store", f"sqlite:///{path}"
    )
    with Program(words, path.parent / "verify") as verify:
        code = verify.wait()
    report = json.loads(verify.output)
    violated = {check["name"] for check in report["checks"] if check["outcome"] == "violated"}
    assert violated <= {"drains"}, verify.describe()
    assert (code, report["outcome"]) == ((1, "violated") if violated else (0, "not known"))
    assert report["looked_at"]["runs"] > 5
    assert rows(path) == before
    assert path.read_bytes() == files, "not even the file"


def test_experiment_that_stops_its_own_server_loses_nothing(tmp_path):
    code, report, said = chaos(
        tmp_path, "--server", "redis", "--faults", "server,kill", "--seconds", 3, "--seed", 6, "--workers", 2, "--rate", 3,
        "--kills-per-minute", 60, "--objective", 600,
    )  # fmt: skip
    assert alarms(report) == {}, said
    assert code == 0
    assert report["faults"]["outages"] >= 1
    assert report["verdict"]["looked_at"]["runs"] > 0


def test_stopped_server_is_started_again_for_the_checks_and_its_data_are_kept_if_one_is_violated(
    tmp_path,
):
    """The runs never end and are not waited for, which violates a check on every machine."""
    code, report, said = chaos(
        tmp_path, PROGRAMS / "endless_flows.py", "--submit", "never_ends", "--args", '["x"]', "--server", "redis", "--faults", "server",
        "--seconds", 1, "--seed", 13, "--workers", 1, "--rate", 5, "--kills-per-minute", 60, "--settle", 0, "--grace", 1,
        OUTLAST_STORE_PATIENCE="0.2",
    )  # fmt: skip
    assert report["faults"]["outages"] == 1, said
    assert report["settled_seconds"] is None
    assert code == 1 and check_of(report, "ended")["outcome"] == "violated", said
    kept = tmp_path / "report" / "redis"
    assert f"the server's data are in {kept}" in said
    with redis_server(tmp_path, "--appendonly", "yes", "--dir", str(kept / "data")) as server:
        store = store_at(server.url)
        store.open()
        with closing(store):
            found = store.runs(RunQuery(items=False, limit=1000))
            assert len(found) == report["verdict"]["looked_at"]["runs"] > 0


@pytest.mark.extended
def test_data_of_its_own_postgres_can_be_kept(tmp_path):
    with set_up_store(None, "postgres", tmp_path) as where:
        store = where.store()
        store.open()
        store.close()
        where.keep(tmp_path / "kept")
    data = tmp_path / "kept" / "data"
    assert (data / "PG_VERSION").is_file() and not (data / "postmaster.pid").exists()


def test_data_of_its_own_server_are_removed_if_all_is_well(tmp_path):
    with set_up_store(None, "redis", tmp_path) as where:
        where.store().open()
    assert list(tmp_path.iterdir()) == []


def test_experiment_that_does_not_begin_leaves_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("outlast.testing.servers.find_spec", lambda _: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    (tmp_path / "mine").mkdir()
    for words in ([], ["--report", "new"], ["--report", "mine"]):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as ended:
            main(["chaos", "--server", "redis", *words])
        assert ended.value.code == 2 and "pip install" in capsys.readouterr().err
    assert (
        sorted(path.name for path in tmp_path.iterdir()) == ["mine", "t"]
        and list((tmp_path / "t").iterdir()) == []
    )


def test_file_store_gets_one_worker_and_work_while_it_is_dead(tmp_path):
    code, report, said = chaos(
        tmp_path, PROGRAMS / "user_flows.py", "--submit", "report", "--args", '["tides {n}", 5]', "--store", f"file:{tmp_path}/store",
        "--faults", "kill", "--seconds", 1, "--seed", 2, "--rate", 3, "--kills-per-minute", 30,
    )  # fmt: skip
    assert (code, alarms(report)) == (0, {}), said
    assert report["options"]["workers"] == 1
    assert check_of(report, "ended")["facts"]["statuses"] == {
        "done": report["work"]["acknowledged"]
    }


def test_effect_that_is_not_idempotent_as_declared_is_found(tmp_path):
    with Program.python(
        PROGRAMS / "lying_chaos.py", tmp_path, folder=tmp_path / "driver"
    ) as experiment:
        assert experiment.wait(EXPERIMENT_SECONDS) == 0, experiment.describe()
    report = json.loads(experiment.output)
    assert not report["passed"] and report["outcome"] == "violated"
    assert set(alarms(report)) == {"no action twice", "compensated"}
    assert "was done once more" in alarms(report)["no action twice"][0]


def test_user_workflows_get_every_check_that_needs_no_ledger(tmp_path):
    code, report, said = chaos(
        tmp_path, PROGRAMS / "user_flows.py", "--submit", "report", "--args", '["tides {n}", 5]', "--submit", "report", "--args", '{"topic": "x"}',
        "--seconds", 2, "--seed", 13, "--workers", 2, "--rate", 4, "--faults", "kill,term", "--kills-per-minute", 60,
    )  # fmt: skip
    assert (code, alarms(report), report["outcome"]) == (0, {}, "not known"), said
    assert check_of(report, "redone")["not_known"] and not check_of(report, "ended")["not_known"]
    assert check_of(report, "ended")["facts"]["statuses"] == {
        "done": report["work"]["acknowledged"]
    }


def test_worker_that_exceeds_its_grace_is_reported_and_killed(tmp_path):
    code, report, said = chaos(
        tmp_path, PROGRAMS / "deaf_flows.py", "--submit", "for_ever", "--args", '["a"]', "--seconds", 1, "--seed", 3, "--workers", 1, "--rate", 5,
        "--faults", "term", "--kills-per-minute", 1, "--grace", 1, "--settle", 0, OUTLAST_SIGNALS="0",
    )  # fmt: skip
    assert code == 1
    assert set(alarms(report)) == {"drains", "ended"}, said
    assert "after SIGTERM, with a grace of 1 s" in alarms(report)["drains"][0]
    assert "-for_ever is" in alarms(report)["ended"][0], "it was not waited for"


def test_all_processes_die_with_the_driver_even_stopped_ones(tmp_path):
    words = command(
        "--seconds", 600, "--kills-per-minute", 0, "--workers", 2, "--report", tmp_path / "report"
    )
    with Program(words, tmp_path / "driver") as driver:
        logs = tmp_path / "report"
        driver.wait_until(
            lambda: sum(b'"working"' in log.read_bytes() for log in logs.glob("worker-*.log")) == 2
        )
        others = set(processes_of(tmp_path)) - {driver.pid}
        assert len(others) >= 3, "two workers and the ledger"
        workers = [
            pid
            for pid in others
            if b"outlast.tools.chaos.worker_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(workers[0], signal.SIGSTOP)
    wait_until(lambda: processes_of(tmp_path) == [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--faults", "explode"], "there is no fault 'explode'"),
        (["--faults", "server"], "only a server that it started"),
        (["--submit", "report"], "workflow of a MODULE"),
        ([PROGRAMS / "user_flows.py"], "name a workflow to submit"),
        (
            [PROGRAMS / "user_flows.py", "--submit", "reprot"],
            "no workflow 'reprot'. Available: report",
        ),
        ([PROGRAMS / "user_flows.py", "--submit", "report", "--args", "7"], "must be a JSON list"),
        ([PROGRAMS / "user_flows.py", "--submit", "report", "--args", "[]"], "topic"),
        (["--store", "memory:"], "ends with the process"),
        (["--store", "file:x", "--workers", "2"], "one process at a time"),
        (["--server", "redis", "--store", "sqlite:///x.db"], "leave out --store"),
        (["--seconds", "inf"], "--seconds"),
        (["--kills-per-minute", "inf"], "--kills-per-minute"),
        (["--objective", "inf"], "--objective"),
    ],
)
def test_invalid_options_exit_with_2(words, said, tmp_path, monkeypatch, capsys):
    assert refused(tmp_path, monkeypatch, *words) == 2
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_store_with_other_work_is_refused(tmp_path, monkeypatch, capsys):
    store = store_at(f"sqlite:///{tmp_path}/shared.db")
    store.open()
    with closing(store):
        store.commit([Submit("theirs", "flow", "[]", "t", "00")])
    assert refused(tmp_path, monkeypatch, "--store", f"sqlite:///{tmp_path}/shared.db") == 2
    assert "there are unfinished runs (theirs)" in capsys.readouterr().err
    with closing(store):
        store.open()
        store.commit([RegisterWorker("w", "h", 1, 30.0), Cancel("theirs", "enough")])
    assert refused(tmp_path, monkeypatch, "--store", f"sqlite:///{tmp_path}/shared.db") == 2
    assert "1 workers are active" in capsys.readouterr().err
    assert (
        refused(tmp_path, monkeypatch, "--store", f"sqlite:///{tmp_path}/shared.db", "--json") == 2
    )
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 2


def test_seed_is_tried_once_in_a_store(tmp_path, monkeypatch, capsys):
    """Work with the ids of an earlier experiment is not executed again, so it would look lost."""
    store = store_at(f"sqlite:///{tmp_path}/shared.db")
    store.open()
    with closing(store):
        store.commit([Submit("chaos-5-000000-order", "order", "[]", "t", "00", queue="chaos-5")])
        store.commit([Cancel("chaos-5-000000-order", "enough")])
    assert (
        refused(tmp_path, monkeypatch, "--seed", 5, "--store", f"sqlite:///{tmp_path}/shared.db")
        == 2
    )
    assert "seed 5 was used in the store at" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["a-file", "a-file/below"])
def test_unwritable_report_folder_is_refused(where, tmp_path, monkeypatch, capsys):
    (tmp_path / "a-file").write_text("x")
    monkeypatch.setattr(
        "outlast.tools.chaos.experiment.Experiment.run", lambda _: pytest.fail("it began")
    )
    with pytest.raises(SystemExit) as ended:
        main(["chaos", "--report", str(tmp_path / where)])
    assert ended.value.code == 2
    assert "cannot be the folder of a report" in " ".join(capsys.readouterr().err.split())


def test_report_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.html"
    cli._write(path, "a file's name that is no text: \udcff")
    assert path.read_text() == "a file's name that is no text: ?"
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(cli.ReportNotWritten, match=r"report\.html could not be written"):
        cli._write(tmp_path / "not" / "there" / "report.html", "x")


def test_death_of_the_ledger_fails_the_experiment(tmp_path):
    words = command(
        "--seconds",
        600,
        "--kills-per-minute",
        0,
        "--workers",
        1,
        "--report",
        tmp_path / "report",
        "--json",
    )
    with Program(words, tmp_path / "driver") as driver:
        log = tmp_path / "report" / "ledger.jsonl"
        driver.wait_until(lambda: log.exists() and log.stat().st_size > 500)
        (ledger,) = [
            pid
            for pid in processes_of(tmp_path)
            if b"outlast.tools.chaos.ledger" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(ledger, signal.SIGKILL)
        assert driver.wait() == 1, driver.describe()
    said = json.loads(driver.output)["error"]
    assert (
        said["type"] == "ChaosFailed" and "the ledger exited by itself with -9" in said["message"]
    )
    wait_until(lambda: processes_of(tmp_path) == [])


def test_signal_handlers_are_reset_except_ignored_ones():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    try:
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        cli.obey_signals()
        assert [signal.getsignal(number) for number in numbers] == [
            signal.default_int_handler,
            signal.default_int_handler,
            signal.SIG_IGN,
        ]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@pytest.mark.parametrize(("term", "view"), [("dumb", Lines), ("xterm", Screen)])
def test_dumb_terminal_gets_lines(term, view, monkeypatch, capsys):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = cli._view(False)
    shown.close()
    assert type(shown) is view


def test_report_folder_must_be_empty(tmp_path, monkeypatch, capsys):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "mine").write_text("x")
    assert refused(tmp_path, monkeypatch) == 2
    assert "not empty" in capsys.readouterr().err


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Return the exit code of an experiment that does not begin. It runs in this process."""
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("OUTLAST_")]:
        monkeypatch.delenv(name)
    report = folder / "report"
    if report.exists() and not (report / "mine").exists():
        shutil.rmtree(report)
    with pytest.raises(SystemExit) as ended:
        main(["chaos", *map(str, words), "--report", str(report)])
    return int(ended.value.code or 0)
