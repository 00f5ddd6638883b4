"""Every example runs, is killed in the middle, and goes on."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from outlast.store.address import store_at

EXAMPLES = Path(__file__).parents[2] / "examples"


def command(name: str, *args: str) -> list:
    return [sys.executable, "-W", "error", EXAMPLES / name, *args]


def wait_for_entries(folder: Path, run: str, count: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "outlast.db").exists():
            store = store_at(f"sqlite:///{folder / 'outlast.db'}")
            store.open()
            row = store.run(run)
            entries = store.journal(row.pk) if row else []
            store.close()
            if len(entries) >= count:
                return
        time.sleep(0.02)
    raise AssertionError(f"{run} never had {count} entries")


@pytest.mark.parametrize(
    ("name", "args", "run", "entries", "result"),
    [
        ("report.py", (), "report-1", 2, "tides: finding 5"),
        ("batch.py", ("60",), "batch-60", 5, str(sum(n * n for n in range(60)))),
    ],
)
def test_an_example_that_is_killed_goes_on(tmp_path, name, args, run, entries, result) -> None:
    first = subprocess.Popen(command(name, *args), cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_for_entries(tmp_path, run, entries, first)
    first.kill()
    first.wait()
    again = subprocess.run(
        command(name, *args), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert again.stdout.strip().endswith(result)
    third = subprocess.run(
        command(name, *args), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert third.stdout.strip() == again.stdout[again.stdout.index(third.stdout.strip()) :].strip()


def test_the_approval_example_waits_for_a_person(tmp_path) -> None:
    program = subprocess.Popen(command("approval.py"), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    wait_for_entries(tmp_path, "trip-1", 1, program)
    outlast = [sys.executable, "-m", "outlast"]
    deadline = time.monotonic() + 30
    listed = ""
    while "trip-1" not in listed and time.monotonic() < deadline:
        listed = subprocess.run(
            [*outlast, "runs", "--waiting-for", "approval"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert "trip-1" in listed
    subprocess.run(
        [*outlast, "send", "trip-1", "approval", "true"], cwd=tmp_path, check=True, capture_output=True
    )
    out, _ = program.communicate(timeout=30)
    assert out.strip() == "booked: three days in Lisbon"


def lines_of(ledger: Path, said: int = 0) -> list[str]:
    """What was done at the companies: words, without the key; only once there are so many."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [line.rpartition(" ")[0] for line in lines] if len(lines) >= said else []


BOOKED = ["book flight", "book hotel", "book car"]
UNDONE = ["book flight", "book hotel", "cancel hotel", "cancel flight"]


@pytest.mark.parametrize(
    ("args", "ledger", "result", "kill_after"),
    [
        *[(("Lisbon",), BOOKED, "booked: flight in Lisbon, hotel in Lisbon, car in Lisbon", n) for n in (1, 2, 3)],
        *[(("Porto", "--no-car"), UNDONE, "no trip: no car left in Porto", n) for n in (2, 3, 4)],
    ],
)  # fmt: skip
def test_the_trip_is_booked_once_or_undone_wherever_it_is_killed(
    tmp_path, args, ledger, result, kill_after
) -> None:
    """Each kill falls after something happened outside, and before that is recorded."""
    first = subprocess.Popen(command("trip.py", *args), cwd=tmp_path, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not lines_of(tmp_path / "ledger.txt", kill_after) and time.monotonic() < deadline:
        time.sleep(0.005)
    first.kill()
    first.wait()
    assert lines_of(tmp_path / "ledger.txt") == ledger[:kill_after]
    for _ in range(2):
        again = subprocess.run(
            command("trip.py", *args), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
        assert again.stdout.strip().splitlines()[-1] == result
        assert lines_of(tmp_path / "ledger.txt") == ledger
