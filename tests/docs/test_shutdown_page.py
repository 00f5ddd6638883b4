"""What docs/shutdown.md says in numbers and in YAML is what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from outlast.cli.app import COMMANDS
from outlast.execution.durations import KNOWN_MAX
from outlast.settings import Settings
from outlast.settings.checks import EXIT_SECONDS
from outlast.settings.load import load
from outlast.shutdown.exit_timer import BACKSTOP
from outlast.shutdown.forecast import ENOUGH
from outlast.shutdown.process import INTERRUPTED, TRY_AGAIN
from outlast.shutdown.watchdog import MARGIN, _EndAsInit
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Level
from outlast.tools.doctor.manifests.files import read
from outlast.tools.doctor.registry import IN_MANIFESTS, examine

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "shutdown.md").read_text()
PICTURE = (DOCS / "shutdown.svg").read_text()
YAML = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_times_of_the_picture_are_those_of_the_defaults() -> None:
    settings = Settings()
    gone = settings.grace - EXIT_SECONDS
    nothing_waits = gone - settings.exit_reserve
    told_to_stop = nothing_waits - settings.checkpoint_reserve
    killed = settings.grace - MARGIN
    assert killed == pytest.approx(gone + BACKSTOP)
    for text in (PAGE, PICTURE):
        for seconds in (told_to_stop, nothing_waits, gone, killed, settings.grace):
            assert f"{seconds:g}" in text


def test_the_numbers_of_the_text_are_those_of_the_code() -> None:
    assert f"From the last {KNOWN_MAX} durations" in PAGE
    assert ENOUGH == 5
    assert "fewer than five known durations" in PAGE
    assert f"exit code {_EndAsInit.number}" in PAGE
    assert f"exits with {TRY_AGAIN}" in PAGE
    assert f"exits with {INTERRUPTED}" in PAGE


def test_the_picture_needs_nothing_else_and_has_both_colour_schemes() -> None:
    root = ET.fromstring(PICTURE)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in PICTURE
    assert not re.search(r"href|<script|url\(", PICTURE)
    classes = {name for node in root.iter() for name in node.get("class", "").split()}
    assert all(f".{name} {{" in PICTURE for name in classes)


def test_there_is_a_job_and_workers_are_left_to_the_page_of_deployment() -> None:
    assert [re.search(r"^kind: (\w+)$", text, re.MULTILINE)[1] for text in YAML] == ["Job"]  # type: ignore[index]


@pytest.mark.parametrize("text", YAML, ids=["job"])
def test_a_manifest_gives_a_pod_the_time_that_the_formula_asks_for(text: str) -> None:
    period = int(re.search(r"terminationGracePeriodSeconds: (\d+)", text)[1])  # type: ignore[index]
    grace = int(re.search(r"OUTLAST_GRACE, value: \"(\d+)\"", text)[1])  # type: ignore[index]
    before = re.search(r"\"--timeout\", \"(\d+)\"", text)
    assert period >= (int(before[1]) if before else 0) + grace + 2
    for name in re.findall(r"name: OUTLAST_(\w+)", text):
        assert name.lower() in Settings.__dataclass_fields__


@pytest.mark.parametrize("text", YAML, ids=["job"])
def test_a_manifest_calls_commands_that_there_are(text: str) -> None:
    calls = re.findall(r"command: \[\"outlast\", \"(\w+)\"", text)
    assert calls
    assert set(calls) <= set(COMMANDS)


def test_the_job_is_tried_again_after_the_code_of_an_interruption() -> None:
    assert f"values: [{TRY_AGAIN}]" in YAML[0]


@pytest.mark.parametrize("text", YAML, ids=["job"])
def test_the_doctor_finds_no_error_in_a_manifest(text: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(text)
    found = examine(
        Facts(load({"store": "memory:"}, {}), "", workloads=tuple(read(path))), IN_MANIFESTS
    )
    assert [one for one in found if one.level is Level.ERROR] == []
