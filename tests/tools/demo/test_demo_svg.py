"""The README's picture matches its transcript, and the transcript matches what the demo prints today."""

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.text import Text

import outlast
from outlast.tools.demo.svg import Recording
from outlast.tools.demo.view import CAPTION, Event, State, line

DOCS = Path(__file__).parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
BYTES_MAX = 150_000


def frames(text: str) -> list[list[str]]:
    """The text of each, line by line."""
    root = ET.fromstring(text)
    return [
        ["".join(row.itertext()) for row in group.iter(f"{SVG}text")]
        for group in root.iter(f"{SVG}g")
    ]


def end_of(transcript: str) -> list[str]:
    return transcript[transcript.index("The demo checked") :].strip().split("\n")


def check(svg: str, transcript: str) -> None:
    shown = frames(svg)
    end = [text for text in end_of(transcript) if text]
    assert [text.rstrip() for text in shown[-1][-len(end) :]] == end
    assert shown[-1][0].startswith("outlast demo: a research agent on three workers")
    drawn = {re.sub(r"\s+", " ", line).strip() for frame in shown[:-1] for line in frame}
    told = transcript.split("\n\n", maxsplit=1)[0].split("\n")[1:]
    assert len(told) > 15
    for event in told:
        assert re.sub(r"\s+", " ", event).strip() in drawn


def test_demo_output_is_the_transcript(recorded):
    output = recorded.output.rstrip().split("\n")
    told = [line for line in output if not re.match(r" *[\d.]+ s  \(", line)]
    assert told == (recorded.folder / "demo.txt").read_text().strip().split("\n")[1:]


def test_the_picture_of_the_documentation_is_that_of_its_transcript():
    check((DOCS / "demo.svg").read_text(), (DOCS / "demo.txt").read_text())


def test_a_picture_that_is_made_now_is_that_of_its_transcript(recorded):
    check((recorded.folder / "demo.svg").read_text(), (recorded.folder / "demo.txt").read_text())


def test_files_beside_a_picture_are_kept(recorded):
    assert (recorded.folder / "demo.new").read_text() == "somebody's"
    assert {one.name for one in recorded.folder.iterdir() if "demo.svg" in one.name} == {"demo.svg"}


def alike(transcript: str) -> list[str]:
    """What it says whatever the numbers are, and in whatever order two workers were."""
    told, end = transcript.split("\n\n", maxsplit=1)
    end = re.sub(r"\S*outlast show", "outlast show", " ".join(end.split()))
    lines = (*told.split("\n"), end)
    return sorted(re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "0", line)).strip() for line in lines)


def test_the_transcript_of_the_documentation_is_what_the_demo_says_today(recorded):
    assert alike((DOCS / "demo.txt").read_text()) == alike(
        (recorded.folder / "demo.txt").read_text()
    )


@pytest.mark.parametrize("where", ["docs", "recorded"])
def test_a_picture_needs_nothing_else_moves_only_for_who_wants_it_and_says_what_it_is(
    where, recorded
):
    text = ((DOCS if where == "docs" else recorded.folder) / "demo.svg").read_text()
    root = ET.fromstring(text)
    assert root.get("role") == "img"
    assert not re.search(r"href|<script|url\(|@import|<image|foreignObject", text)
    assert "prefers-reduced-motion: no-preference" in text
    said = root.findtext(f"{SVG}desc") or ""
    assert CAPTION in said
    assert outlast.__version__ in said
    assert re.search(r"\d{4}-\d\d-\d\d", said)
    assert len(text.encode()) < BYTES_MAX
    classes = {name for node in root.iter() for name in node.get("class", "").split()}
    assert all(f".{name} {{" in text for name in classes - {"plain"})


def test_what_is_in_a_frame_is_text_and_never_markup():
    recording = Recording()
    recording.show(State(events=[Event(0.0, "<script>&amp;\"'</script>")]))
    shown = frames(recording.picture([line(("<b>", "bad"))]))
    assert any("<script>&amp;\"'</script>" in text for text in shown[0])
    assert shown[-1][-1] == "<b>"


def test_a_demo_that_drew_nothing_still_has_its_end():
    assert frames(Recording().picture([line(("the end", "plain"))])) == [["the end"]]


def test_each_frame_is_to_be_seen_and_one_at_a_time():
    recording = Recording()
    for second in range(10):
        recording.show(State(seconds=float(second), messages=second))
        recording.show(State(seconds=second + 0.01, messages=second))
    text = recording.picture([Text("the end")])
    times = [
        [
            float(one)
            for one in re.findall(
                r"(\d+\.\d+)% \{ visibility: visible|(?:^|\s)(\d+\.\d+)%, 100%", rule
            )
            for one in one
            if one
        ]
        for rule in re.findall(r"@keyframes k\d+ (.*)", text)
    ]
    assert len(times) == 11
    for (_, over), following in itertools.pairwise(times):
        assert following[0] == over
