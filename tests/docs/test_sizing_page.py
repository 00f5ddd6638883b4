"""The numbers of docs/sizing.md are those of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from outlast.settings import Settings
from outlast.tools.doctor.grace import MARGIN_MIN, step_seconds
from outlast.tools.doctor.registry import HERE, IN_MANIFESTS
from support.cli import answer_in

PAGE = (Path(__file__).parents[2] / "docs/sizing.md").read_text()


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_a_step_has_as_long_as_the_table_of_graces_says() -> None:
    rows = re.findall(r"^\| (\d+) s\S* ?.*?\| ([\d.]+) s \|", section("Grace"), re.MULTILINE)
    assert [int(grace) for grace, _ in rows] == [10, 30, 60, 120, 300]
    for grace, seconds in rows:
        assert step_seconds(Settings.load({"grace": float(grace)}, {})) == pytest.approx(
            float(seconds)
        )


def test_what_is_called_a_default_is_one() -> None:
    settings = Settings()
    for name, shown in (
        ("checkpoint_reserve", "3 s"), ("exit_reserve", "2 s"), ("stall_max", "20 s"), ("effect_margin", "5 s"), ("poll", "2 s"),
        ("heartbeat", "0.2 s"), ("concurrency", "20"), ("linger", "1 s"),
    ):  # fmt: skip
        assert f"`{name}` ({shown})" in PAGE
        assert getattr(settings, name) == float(shown.removesuffix(" s"))
    assert (settings.grace, settings.lease, settings.new_share) == (30, 30, 0.2)
    assert f"grace + {MARGIN_MIN:g} s |" in PAGE


def test_the_command_of_the_example_gives_the_number_that_the_sum_gives(tmp_path, capsys) -> None:
    example = re.sub(r"\\\n\s*", "", section("A worked example"))
    manifest, doctor = re.findall(r"^    outlast (.*)$", example, re.MULTILINE)
    command, _, file = manifest.partition(" > ")
    printed = outlast(command, tmp_path, capsys)
    (tmp_path / file).write_text(printed)
    [period] = re.findall(r"terminationGracePeriodSeconds: (\d+)", printed)
    assert f"preStop 10 + 45 + 5 = **{period}**" in PAGE
    assert "ok      grace" in outlast(doctor, tmp_path, capsys)


def outlast(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    answer = answer_in(folder, shlex.split(command), capsys)
    assert answer.code == 0, answer
    return answer.out


def test_the_checks_that_are_named_are_there() -> None:
    rows = [
        line.split("|")[1:]
        for line in section("What the doctor checks").splitlines()
        if "|" in line
    ]
    here, in_manifests = (
        {name for row in rows[1:] for name in re.findall(r"`(\w+)`", row[at])} for at in (1, 2)
    )
    assert here <= set(HERE)
    assert in_manifests <= set(IN_MANIFESTS)
    assert {"grace", "lease", "postgres", "filesystem"} <= here
