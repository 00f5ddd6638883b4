"""docs/comparison.md: whatever it says of others has a source, or was measured. And docs/scaling.md, whose sources are named links too."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "comparison.md").read_text()
PEERS = ("DBOS", "Temporal", "Restate", "LangGraph", "Celery")
CLAIMED = re.compile(r"\[[A-Z]\d+\]|\*measured\*|\*not found\*")
REFERENCE = re.compile(r"\[([A-Z]\d+)\](?!:)")
SOURCES = dict(re.findall(r"^\[([A-Z]\d+)\]: (\S+)$", PAGE, re.MULTILINE))


def part(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """Of a table, without its rule."""
    lines = [
        line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")
    ]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_each_cell_about_another_has_a_source() -> None:
    head, read_at, *claims = rows(part("In one table"))
    assert [cell.strip("| ") for cell in head[-5:]] == list(PEERS)
    assert read_at[0] == "**Version read**"
    assert len(claims) > 15
    for row in claims:
        assert len(row) == 2 + len(PEERS), row
        for peer, cell in zip(PEERS, row[2:], strict=True):
            assert CLAIMED.search(cell), f"{peer}, {row[0]}: {cell}"


@pytest.mark.parametrize("peer", PEERS)
def test_the_part_of_each_begins_with_when_to_choose_it_and_every_line_has_a_source(
    peer: str,
) -> None:
    text = part(peer).strip()
    assert text.startswith("**Choose it if**\n")
    assert "\n**What differs**\n" in text
    claims = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(claims) > 6
    assert [line for line in claims if not CLAIMED.search(line)] == []


def test_each_source_is_used_has_an_address_and_says_when_it_was_read() -> None:
    said, listed = PAGE.split("\n## Sources\n", 1)
    told = {row[0].strip("[]"): row for row in rows(listed)[1:]}
    assert set(REFERENCE.findall(said)) == set(SOURCES) == set(told)
    assert all(address.startswith("https://") for address in SOURCES.values())
    for name, row in told.items():
        assert len(row) == 3, f"{name} does not say what was read, and of when"
        assert all(row)
    assert re.search(r"Read on \d{4}-\d\d-\d\d", listed)


@pytest.mark.parametrize("page", ["comparison.md", "scaling.md"])
def test_each_named_link_has_an_address_and_each_address_is_used(page: str) -> None:
    text = (DOCS / page).read_text()
    addresses = re.findall(r"^\[([^\]]+)\]: https://", text, re.MULTILINE)
    used = set(re.findall(r"\]\[([^\]]+)\]", text)) | set(REFERENCE.findall(text))
    assert used == set(addresses)
    assert len(addresses) == len(set(addresses))
