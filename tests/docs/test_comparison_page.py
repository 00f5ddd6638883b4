"""Check that every statement about another project has a source or was measured.

Covers docs/comparison.md with its page of sources, and the named links of docs/scaling.md.
"""

import re

import pytest
from markdown_pages import DOCS

PAGE = (DOCS / "comparison.md").read_text()
SOURCES_PAGE = (DOCS / "comparison-sources.md").read_text()
PEERS = ["DBOS", "Temporal", "Restate", "LangGraph", "Celery"]
QUEUES = ["Absurd", "Prefect", "Oban for Python", "pgqueuer"]
TABLES = {
    "When a process dies": ["Outlast", *PEERS],
    "Writing and changing code": ["Outlast", *PEERS],
    "Running it": ["Outlast", *PEERS],
    "Absurd, Prefect, Oban and pgqueuer": QUEUES,
}
CLAIMED = re.compile(r"\[[A-Z]\d+\]|\*measured\*|\*not found\*")
REFERENCE = re.compile(r"\[([A-Z]\d+)\](?!:)")
ADDRESSES = dict(re.findall(r"^\[([A-Z]\d+)\]: (\S+)$", PAGE, re.MULTILINE))


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0].split("\n[D1]: ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """Return the cells of the tables in a text, without the rules below their heads."""
    lines = [
        line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")
    ]
    return [
        [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        for line in lines
    ]


@pytest.mark.parametrize("heading", TABLES)
def test_each_cell_about_another_project_has_a_source(heading: str) -> None:
    head, *claims = rows(section(heading))
    assert head == ["", *TABLES[heading]]
    assert len(claims) > 5
    for claim in claims:
        for project, cell in zip(head[1:], claim[1:], strict=True):
            if project != "Outlast":
                assert CLAIMED.search(cell), f"{project}, {claim[0]}: {cell}"


@pytest.mark.parametrize("peer", PEERS)
def test_each_section_begins_with_reasons_to_choose_the_peer_and_each_item_has_a_source(
    peer: str,
) -> None:
    text = section(peer).strip()
    assert text.startswith("**Choose it if**\n")
    assert "\n**What differs**\n" in text
    claims = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(claims) > 6
    assert [line for line in claims if not CLAIMED.search(line)] == []


def test_each_reason_to_choose_a_queue_has_a_source() -> None:
    reasons = section("Absurd, Prefect, Oban and pgqueuer").split("**Choose**", 1)[1]
    claims = [line for line in reasons.splitlines() if line.startswith("- ")]
    assert len(claims) == len(QUEUES)
    assert [line for line in claims if not CLAIMED.search(line)] == []


def test_each_source_is_cited_has_an_address_and_says_what_was_read() -> None:
    listed = {row[0]: row for row in rows(SOURCES_PAGE) if row[0]}
    assert set(REFERENCE.findall(PAGE)) == set(ADDRESSES) == set(listed)
    assert all(address.startswith("https://") for address in ADDRESSES.values())
    for name, row in listed.items():
        assert len(row) == 3, f"{name} does not say what was read, and its version or date"
        assert all(row)
    assert re.search(r"read on \d{4}-\d\d-\d\d", SOURCES_PAGE)


def test_each_version_on_the_page_is_the_version_of_a_source() -> None:
    versions = {row[2] for row in rows(SOURCES_PAGE)}
    read = rows(PAGE.split("\n## ", 1)[0])
    assert len(read) == 1 + len(PEERS) + 1
    stated = {version for row in read for version in re.findall(r"\b\d+\.\d+\.\d+\b", row[1])}
    assert len(stated) > len(PEERS)
    assert stated <= versions


@pytest.mark.parametrize("page", ["comparison.md", "scaling.md"])
def test_each_named_link_has_an_address_and_each_address_is_used(page: str) -> None:
    text = (DOCS / page).read_text()
    addresses = re.findall(r"^\[([^\]]+)\]: https://", text, re.MULTILINE)
    used = set(re.findall(r"\]\[([^\]]+)\]", text)) | set(REFERENCE.findall(text))
    assert used == set(addresses)
    assert len(addresses) == len(set(addresses))
