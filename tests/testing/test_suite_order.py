"""The order in which xdist's workers get the tests of this suite."""

from pathlib import Path
from typing import NamedTuple

import pytest

from support.order import LONG_FILES, spread_long_files

ROOT = Path(__file__).parents[2]


class Item(NamedTuple):
    nodeid: str


def items(long: int, short: int) -> list[Item]:
    names = [f"tests/aaa/test_short_{number}.py::test" for number in range(short)]
    return [Item(name) for name in names] + [
        Item(f"{name}::test_{number}") for name in LONG_FILES[:long] for number in range(2)
    ]


def test_long_files_exist():
    assert [name for name in LONG_FILES if not (ROOT / name).is_file()] == []
    assert len(set(LONG_FILES)) == len(LONG_FILES)


@pytest.mark.parametrize("workers", [2, 4, 6])
@pytest.mark.parametrize(("long", "short"), [(0, 0), (0, 7), (5, 0), (40, 2), (10, 1000)])
def test_no_test_is_lost(workers, long, short):
    given = items(long, short)
    assert sorted(spread_long_files(given, workers)) == sorted(given)


def test_each_worker_starts_with_a_long_file_and_ends_with_short_tests():
    given = items(long=12, short=1000)
    ordered = spread_long_files(given, 4)
    size = len(given) // 4
    for worker in range(4):
        part = [item.nodeid.startswith("tests/aaa") for item in ordered[worker * size :][:size]]
        assert part.count(False) == 6, "three long files"
        assert part[0] is False
        assert all(part[-size // 5 :])
