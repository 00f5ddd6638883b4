"""Every example runs, is killed in the middle, and goes on."""

import os
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


def test_the_demo_kills_and_goes_on(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py"], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=True,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert "1 death" in done.stdout
    assert (tmp_path / "outlast-demo.db").exists()
