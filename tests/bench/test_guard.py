"""Test that the guard fails on a collapse and on nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench.guard import COMMITTED, WORDS, collapses, told

from bench import guard
from support.waiting import WAIT_SECONDS

REPOSITORY = Path(__file__).parents[2]
COMMITTED_RATIOS = {"lone": 0.6, "hundred": 6.0, "cpu": 1.2}


def found(**changed: list[float]) -> dict[str, list[float]]:
    return {name: [ratio, ratio * 0.9] for name, ratio in COMMITTED_RATIOS.items()} | changed


def test_a_third_of_what_was_committed_is_a_collapse_and_a_half_is_not() -> None:
    assert collapses(found(), COMMITTED_RATIOS, in_memory=False) == []
    assert collapses(found(hundred=[3.0, 0.1]), COMMITTED_RATIOS, in_memory=False) == []
    assert collapses(found(hundred=[1.9, 0.1]), COMMITTED_RATIOS, in_memory=False) == ["hundred"]


def test_one_good_round_is_enough() -> None:
    assert collapses(found(lone=[0.01, 0.01, 0.25]), COMMITTED_RATIOS, in_memory=False) == []


def test_in_memory_only_cpu_is_judged() -> None:
    nothing = {name: [0.0001] for name in WORDS}
    assert collapses(nothing, COMMITTED_RATIOS, in_memory=True) == ["cpu"]
    assert collapses(nothing, COMMITTED_RATIOS, in_memory=False) == list(WORDS)


def test_the_table_has_what_was_committed_beside_what_is() -> None:
    text = told(found(hundred=[1.0]), COMMITTED_RATIOS, ["hundred"])
    row = next(line for line in text.splitlines() if WORDS["hundred"] in line)
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == [
        "1.00x",
        "1.00 to 1.00",
        "6.00x",
        "2.00x",
        "COLLAPSED",
    ]


def test_what_is_committed_has_every_ratio() -> None:
    assert set(json.loads(COMMITTED.read_text())) == set(WORDS)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_guard_prints_its_table_and_fails_on_a_collapse(
    factor: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The measurement itself runs at the end of `make test`."""
    ratios = tmp_path / "guard.json"
    ratios.write_text(json.dumps(dict.fromkeys(WORDS, factor)))
    monkeypatch.setattr(guard, "measure", measured)
    monkeypatch.setattr(
        sys, "argv", ["guard", "--ratios", str(ratios), "--dir", str(tmp_path), "--seconds", "7"]
    )
    if factor > 1:
        with pytest.raises(SystemExit) as ended:
            guard.main()
        assert "python -m bench.guard --write" in str(ended.value)
    else:
        guard.main()
    out = capsys.readouterr().out
    assert all(words in out for words in WORDS.values())


async def measured(folder: Path, seconds: float) -> dict[str, list[float]]:
    assert folder.is_dir() and seconds == 7.0
    return found()


@pytest.mark.extended
def test_guard_measures_as_a_program(tmp_path: Path) -> None:
    ratios = tmp_path / "guard.json"
    ratios.write_text(json.dumps(dict.fromkeys(WORDS, 1e6)))
    command = [
        sys.executable,
        "-m",
        "bench.guard",
        "--seconds",
        "0.1",
        "--ratios",
        ratios,
        "--dir",
        tmp_path,
    ]
    done = subprocess.run(
        command, cwd=REPOSITORY, check=False, capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    assert done.returncode == 1, done.stderr
    assert all(words in done.stdout for words in WORDS.values())
    assert "python -m bench.guard --write" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_guard_is_the_last_step_of_make_test() -> None:
    recipe = re.search(
        r"^test:.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE
    )
    assert recipe
    assert recipe[1].splitlines()[-1].endswith("-m bench.guard")
