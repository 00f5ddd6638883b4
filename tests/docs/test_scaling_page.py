"""docs/scaling.md: its tables are what its formulas give."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/scaling.md").read_text()
PART = PAGE.split("\n## The arithmetic\n", 1)[1].split("\n## ", 1)[0]
SECONDS, VALUE = 5, 2_000
DISK, LOG, CPU = 184, 380, 260e-6
CONNECTIONS, IDLE = 3, 13
UNITS = {"GB": 1e9, "TB": 1e12, "MB/s": 1e6, "cores": 1}
ROUNDED = 0.05


def number(cell: str) -> float:
    digits, *unit = re.sub(r" \(.*\)", "", cell.strip()).split()
    return float(digits.replace(",", "")) * (UNITS[unit[0]] if unit else 1)


def table(first_of_head: str, second_of_head: str) -> list[list[float]]:
    lines = PART.split(f"| {first_of_head} | {second_of_head} |", 1)[1].splitlines()[2:]
    rows = lines[: next(at for at, line in enumerate(lines) if not line.startswith("|"))]
    return [[number(cell) for cell in line.strip("|").split("|")] for line in rows]


def test_the_page_says_what_it_reckons_with():
    assert f"every **{SECONDS} seconds**" in PART
    assert f"values of **{VALUE:,} bytes**" in PART
    assert f"steps/s x 86,400 x ({DISK} + value)\n" in PART
    assert f"steps/s x ({LOG} + value)\n" in PART
    assert f"{DISK} plus the value" in PAGE
    assert f"{LOG} plus the value" in PAGE
    assert f"to {CPU * 1e6:.0f} µs" in PAGE
    assert f"about {IDLE} transactions a second" in PAGE


def test_steps_room_and_cpu_follow_from_the_agents():
    rows = table("active agents", "steps/s")
    assert len(rows) == 4
    for agents, steps, disk, log, log_a_day, cores in rows:
        assert steps == agents / SECONDS
        assert disk == pytest.approx(steps * 86_400 * (DISK + VALUE), rel=ROUNDED)
        assert log == pytest.approx(steps * (LOG + VALUE), rel=ROUNDED)
        assert log_a_day == pytest.approx(steps * 86_400 * (LOG + VALUE), rel=ROUNDED)
        assert cores == pytest.approx(steps * CPU, rel=ROUNDED)


def test_workers_and_connections_follow_from_the_slots():
    rows = table("active agents", "slots per worker")
    assert len(rows) == 5
    for agents, slots, workers, connections, idle in rows:
        assert workers == agents / slots
        assert connections == workers * CONNECTIONS
        assert idle == workers * IDLE
