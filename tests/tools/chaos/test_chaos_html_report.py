"""The HTML report: whole, self-contained, and deaf to what is in it."""

import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from outlast.tools.chaos.html_report import command, page
from outlast.tools.chaos.verdict import EVIDENCE_MAX, Check, Verdict, percentiles

EVIL = "<script>alert(1)</script>\"&'"
VOID = {"meta", "br"}


def checks(evil: str = "r is lost") -> list[Check]:
    found = [
        Check(
            "recovery", "it went on", 3, facts={"objective": 30.0, **percentiles([1.0, 2.0, 9.5])}
        )
    ]
    found.append(Check("redone", "not again", 7, facts={"per_fault": 0.5}))
    found.append(Check("no stale fence", "none", 7, facts={"stale_writers_refused": 4}))
    broken = Check("none lost", "all is there", 2)
    broken.violate(evil)
    unknown = Check("ended", "it ended", 2)
    unknown.is_unknown(evil)
    return [*found, broken, unknown]


def report(evil: str = "x", seconds: tuple[float, ...] = (0.1, 2.0, 9.5)) -> dict[str, Any]:
    verdict = Verdict(checks(evil), {"runs": 3, "deaths": 2, "interruptions": 1})
    return {
        "version": 1, "outlast": "0", "seed": 7, "outcome": verdict.outcome, "passed": False, "began": "2026-01-01T00:00:00+00:00", "seconds": 30.0,
        "settled_seconds": None, "store": evil,
        "options": {
            "seed": 7, "seconds": 20.0, "workers": 2, "concurrency": 10, "rate": 5.0, "per_minute": 20.0, "kinds": ["term"], "grace": 5.0, "lease": 2.0,
            "settle": 60.0, "objective": 30.0, "modules": ["m"], "demo": True, "submit": [], "store": None, "server": "redis", "shared": False,
        },
        "work": {"submitted": 3, "acknowledged": 3, "held_back_seconds": 0.0},
        "faults": {
            "planned": 2, "injected": 2, "missed": 0, "outages": 1, "by_kind": {"term": 1, "server": 1}, "processes": {"term": 1},
            "list": [{"at": 1.0, "kind": "term", "lanes": [1], "description": evil}, {"at": 2.0, "kind": "server", "lanes": [], "description": evil}],
        },
        "workers": {"lanes": 2, "started": 3, "spans": [[1, "alive", 0.0, 1.0], [1, "draining", 1.0, 2.0], [2, "stopped", 5.0, 9.0]]},
        "recovery": {"by_fault": {evil: percentiles(seconds)}, "seconds": list(seconds)},
        "verdict": verdict.document(),
    }  # fmt: skip


class Whole(HTMLParser):
    """Every tag is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_whole_and_needs_nothing_from_elsewhere():
    text = page(report())
    parser = Whole()
    parser.feed(text)
    assert parser.open == []
    assert {"svg", "table", "style"} <= parser.seen and not {
        "script",
        "link",
        "img",
        "iframe",
    } & parser.seen
    assert re.findall(r"(?:href|src|url\()", text) == [] and "http" not in text.replace(
        "http-equiv", ""
    )
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(drawing)


def test_report_in_which_nothing_is_violated_does_not_read_like_a_failure():
    found = report() | {"outcome": "not known", "passed": True}
    assert ">Nothing violated; partly unknown<" in page(found)
    assert ">Partly unknown<" in page(found | {"passed": False})


def test_values_in_the_report_are_escaped():
    text = page(report(EVIL))
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&amp;&#x27;") >= 5


def test_page_shows_lanes_faults_recoveries_and_evidence():
    text = page(report("r-17 is lost"))
    for said in (
        "worker 1",
        "worker 2",
        "var(--draining)",
        "var(--stopped)",
        "1.0 s term",
        "2.0 s server",
        "Violated",
        "r-17 is lost",
        "9.50 s",
    ):
        assert said in text, said
    assert "prefers-color-scheme: dark" in text


def test_report_without_a_recovery_has_a_page_too():
    assert "No run lost its worker" in page(report(seconds=()))


def test_command_of_a_report_of_ones_own_workflows_can_be_given_to_a_shell():
    document = report()
    document["options"] |= {
        "demo": False,
        "modules": ["my flows.py"],
        "submit": [["report", '["it\'s {n}"]'], ["other", "[]"]],
    }
    words = shlex.split(command(document))
    assert words[2] == "my flows.py"
    assert words[3:11] == [
        "--submit",
        "report",
        "--args",
        '["it\'s {n}"]',
        "--submit",
        "other",
        "--args",
        "[]",
    ]


def test_command_of_a_report_repeats_its_plan():
    words = command(report())
    assert (
        "--seed 7" in words
        and "--kills-per-minute 20" in words
        and "--faults term" in words
        and words.endswith("--server redis")
    )


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], {"count": 0}),
        ([2.0], {"count": 1, "p50": 2.0, "p95": 2.0, "max": 2.0}),
        (list(range(1, 101)), {"count": 100, "p50": 50, "p95": 95, "max": 100}),
    ],
)
def test_percentiles_are_values_that_occurred(values, found):
    assert percentiles(values) == found


def test_of_much_evidence_some_is_kept_and_all_is_counted():
    check = Check("x", "y")
    for number in range(500):
        check.violate(f"{number} " + "long " * 1000)
    assert (check.violations, len(check.evidence)) == (500, EVIDENCE_MAX)
    assert len(json.dumps(check.document())) < 50_000


def test_verdict_is_as_good_as_its_worst_check():
    ok, bad, unknown = Check("a", ""), Check("b", ""), Check("c", "")
    bad.violate("x")
    unknown.is_unknown("y")
    assert Verdict([ok], {}).outcome == "ok"
    assert Verdict([ok, unknown], {}).outcome == "not known"
    assert Verdict([ok, unknown, bad], {}).outcome == "violated"
    assert Verdict([ok, bad], {})["b"] is bad


def test_page_of_docs_names_every_check_and_every_fault():
    from outlast.tools.chaos.findings import ASKS
    from outlast.tools.chaos.plan import KINDS

    text = (Path(__file__).parents[3] / "docs" / "chaos.md").read_text()
    assert [name for name in ASKS if f"| *{name}* |" not in text] == []
    assert [kind for kind in KINDS if f"| `{kind}` |" not in text] == []
