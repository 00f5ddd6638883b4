"""The pages docs/benchmarks*.md and their pictures are made of bench/results.json alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from bench.contest.__main__ import RESULTS
from bench.contest.report import pages, plots, stale, write
from bench.contest.summary import BEGIN, END
from bench_samples import results

ROOT = Path(__file__).parents[2]


def test_the_page_and_its_pictures_are_what_the_results_make_of_them() -> None:
    found = json.loads(RESULTS.read_text())["sections"] if RESULTS.exists() else None
    if found is None:
        assert not list((ROOT / "docs").glob("benchmarks*")), (
            "a page without results was written by hand"
        )
    else:
        assert stale(found, ROOT) == [], (
            "`make bench` writes them; by hand they must not be changed"
        )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"# One\n\n{BEGIN}\n{END}\n\nTwo\n")
    write(results(), tmp_path)
    return tmp_path


def test_written_report_is_not_stale(written: Path) -> None:
    assert stale(results(), written) == []


def test_a_figure_changed_by_hand_is_seen(written: Path) -> None:
    page = written / "docs/benchmarks-steps.md"
    text = page.read_text()
    figure = re.findall(r"\d[\d,.]+x", text)[0]
    page.write_text(text.replace(figure, f"9{figure}", 1))
    assert stale(results(), written) == ["docs/benchmarks-steps.md"]


def test_a_picture_that_is_missing_or_of_another_contest_is_seen(written: Path) -> None:
    (written / "docs/benchmarks-growth.svg").unlink()
    (written / "docs/benchmarks-old.svg").write_text("<svg/>")
    assert stale(results(), written) == ["docs/benchmarks-growth.svg", "docs/benchmarks-old.svg"]


def test_every_picture_of_the_page_is_made_and_every_one_that_is_made_is_shown() -> None:
    text = "".join(pages(results()).values())
    shown = set(re.findall(r"!\[[^]]+\]\(([^)]+)\)", text))
    assert shown == set(plots(results()))


def test_the_pictures_are_well_formed_and_have_a_bar_for_every_contender() -> None:
    for name, svg in plots(results()).items():
        texts = [
            element.text for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
        ]
        if name.startswith("benchmarks-steps"):
            assert {"Outlast", "raw", "DBOS", "LangGraph"} <= set(texts)


def test_a_section_that_was_not_measured_is_not_told() -> None:
    made = pages({"growth": results()["growth"]})
    assert sorted(made) == ["benchmarks-growth.md", "benchmarks.md"]
    assert "[Growth](benchmarks-growth.md)" in made["benchmarks.md"]
    assert "Durable steps" not in made["benchmarks.md"]


def test_the_overview_counts_the_goals_and_names_those_that_were_missed() -> None:
    found = results()
    assert "| 9 of 9 " in pages(found)["benchmarks.md"]
    for results_of_a_round in found["steps"]["found"]["rounds"]:
        for result in results_of_a_round:
            if result["case"] == "DBOS on Postgres":
                result["steps_per_second"] *= 10
    overview = pages(found)["benchmarks.md"]
    assert "| 8 of 9 " in overview
    assert "- 100 runs on Postgres: steps/s, Outlast / DBOS: at least 50x. Measured: " in overview


def test_the_readme_has_the_deaths_of_the_results_between_its_marks(written: Path) -> None:
    lines = (written / "README.md").read_text().splitlines()
    assert (lines[:2], lines[-2:]) == (["# One", ""], ["", "Two"])
    cells = {
        row[1]: row[2:5]
        for row in (re.split(r"\s*\|\s*", line) for line in lines if line.startswith("|"))
    }
    assert cells["`kill -9`, OOM kill"] == [
        "resumed in 0.6 s, 0.3 s repeated per job",
        "**not resumed in 60 s**, 10 jobs stuck",
        "resumed in 12.0 s, 0.3 s repeated per job, 4 steps completed twice",
    ]
    assert cells["SIGTERM; every job could finish in time"][0] == "finished before exit"
    (written / "README.md").write_text("\n".join(lines).replace("in 0.6 s", "in 0.1 s"))
    assert stale(results(), written) == ["README.md"]
