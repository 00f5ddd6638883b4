"""What the drivers have in common, and two of them for real: Outlast and the raw store on SQLite."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.contest.ask import DRIVERS, Failed, ask
from bench.contest.contenders import OUTLAST, RAW, Contender
from bench.contest.drivers.common import (
    GAPS_MAX,
    WARM_UP_LAPS_MAX,
    Ledger,
    Meter,
    cpu_seconds,
    laps_to_warm_up,
    tree_cpu_seconds,
)
from bench.contest.stepcases import Shape
from bench.contest.steps import figures

from support.waiting import WAIT_SECONDS


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_gap_is_from_a_body_to_the_next_of_the_same_run() -> None:
    meter = Meter()
    meter.begin()
    for run in ("a", "b", "a", "b"):
        meter.step(run)
        time.sleep(0.01)
    gaps = meter.answer(4)["gaps"]
    assert len(gaps) == 2
    assert all(gap > 0.019 for gap in gaps), "a step of the other run lies between"


def test_meter_counts_nothing_before_it_begins() -> None:
    meter = Meter()
    began, cpu = time.perf_counter(), time.process_time()
    meter.begin()
    meter.step("a")
    time.sleep(0.05)
    burn(0.05)
    meter.begin()
    meter.step("a")
    answer = meter.answer(1)
    assert answer["gaps"] == []
    assert answer["seconds"] <= time.perf_counter() - began - 0.1
    assert answer["cpu_seconds"] <= time.process_time() - cpu - 0.05


def test_gaps_are_taken_evenly_from_all_of_them() -> None:
    meter = Meter()
    meter.begin()
    meter._gaps = [float(number) for number in range(GAPS_MAX * 5)]
    gaps = meter.answer(1)["gaps"]
    assert GAPS_MAX / 2 < len(gaps) <= GAPS_MAX
    assert gaps[-1] > GAPS_MAX * 4.9


def test_cpu_is_that_of_the_process_and_of_what_it_has_waited_for() -> None:
    meter = Meter()
    meter.begin()
    burn(0.1)
    subprocess.run(
        [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True
    )
    answer = meter.answer(1)
    assert answer["cpu_seconds"] >= 0.38
    assert answer["server_cpu_seconds"] == 0
    assert cpu_seconds() >= answer["cpu_seconds"]


CHILDREN = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.3: pass\\nprint('burnt', flush=True); time.sleep(60)"], stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
sys.stdin.readline()
child.kill(); child.wait()
print("gone", flush=True)
sys.stdin.readline()
"""


def test_a_servers_cpu_has_that_of_its_children_while_they_live_and_after() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", CHILDREN], stdin=pipe, stdout=pipe, text=True
    ) as server:
        assert server.stdin and server.stdout
        assert server.stdout.readline() == "ready\n"
        alive = tree_cpu_seconds(server.pid)
        assert alive >= 0.28
        server.stdin.write("\n")
        server.stdin.flush()
        assert server.stdout.readline() == "gone\n"
        assert tree_cpu_seconds(server.pid) >= alive
        server.stdin.close()


def test_sqlite_is_warm_when_its_log_no_longer_grows(tmp_path: Path) -> None:
    log = tmp_path / "a.db-wal"
    laps = []
    for lap in laps_to_warm_up(f"sqlite:///{tmp_path / 'a.db'}"):
        laps.append(lap)
        log.write_bytes(b"x" * min(100 * (lap + 1), 300))
    assert laps == [0, 1, 2, 3]
    assert list(laps_to_warm_up(f"sqlite:///{tmp_path / 'without-a-log.db'}")) == [0]
    assert list(laps_to_warm_up("postgresql:///a")) == [0]


def test_a_log_that_grows_for_ever_is_not_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "a.db-wal"
    laps = 0
    for lap in laps_to_warm_up(f"sqlite:///{tmp_path / 'a.db'}"):
        log.write_bytes(b"x" * (lap + 1))
        laps += 1
    assert laps == WARM_UP_LAPS_MAX


WRITER = """
import sys
sys.path.insert(0, {drivers!r})
from common import Ledger
ledger = Ledger({path!r})
for stage in range(500):
    ledger.note("begin", int(sys.argv[1]), stage)
"""


def test_no_line_of_the_ledger_is_torn_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_WORKER", "a")
    path = str(tmp_path / "ledger")
    program = WRITER.format(drivers=str(DRIVERS), path=path)
    before = time.monotonic()
    writers = [subprocess.Popen([sys.executable, "-c", program, str(job)]) for job in range(4)]
    assert [writer.wait(WAIT_SECONDS) for writer in writers] == [0] * 4
    Ledger(path).note("end", 9, 1)
    lines = [line.split() for line in Path(path).read_text().splitlines()]
    assert len(lines) == 2_001
    assert {(line[1], line[2]) for line in lines[:-1]} == {
        (str(j), str(s)) for j in range(4) for s in range(500)
    }
    assert lines[-1][:3] == ["end", "9", "1"]
    assert all(before <= float(line[4]) <= time.monotonic() for line in lines)


@pytest.mark.parametrize("contender", [OUTLAST, RAW], ids=lambda contender: contender.name)
@pytest.mark.parametrize("shape", [Shape(1, 12), Shape(10, 4)], ids=str)
def test_a_driver_executes_records_and_answers(
    contender: Contender, shape: Shape, tmp_path: Path
) -> None:
    answer = ask(
        contender, "steps", print, store=f"sqlite:///{tmp_path / 'a.db'}", runs=shape.runs, steps=shape.steps, seconds=0.2
    )  # fmt: skip
    lap = shape.runs * shape.steps
    assert answer["recorded"] == lap
    assert answer["steps"] % lap == 0
    assert answer["seconds"] >= 0.2
    assert len(answer["gaps"]) >= shape.runs * (shape.steps - 1)
    assert figures(answer, shape)["steps_per_second"] > 0


def test_a_driver_that_fails_is_failed_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"exit 1(.|\n)*unable to open database file"):
        ask(RAW, "steps", print, store=f"sqlite:///{tmp_path}/there/is/none.db")


def test_a_driver_without_an_answer_is_failed(tmp_path: Path) -> None:
    program = tmp_path / "silent_driver.py"
    program.write_text("print('no JSON')")
    with pytest.raises(Failed, match="no answer: no JSON"):
        ask(Contender("silent", str(program), ("sqlite",)), "steps", print)
