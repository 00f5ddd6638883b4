"""Pages for users are short enough to read in one sitting."""

from __future__ import annotations

import pytest
from markdown_pages import DOCS, name

LINES_MAX = 300
LONGER = {
    "comparison.md": "one table and one section for each project, read side by side",
    "reference-app.md": "one class, `Outlast`",
    "reference-client.md": "one class, `Client`",
    "reference-langgraph.md": "one class, `OutlastSaver`",
    "reference-sync.md": "one class, `Outlast`, and the objects it returns",
}
"""Pages that may be longer, with the reason."""

USER_PAGES = [
    page for page in sorted(DOCS.glob("*.md")) if not page.stem.startswith("architecture")
]


@pytest.mark.parametrize("page", [pytest.param(page, id=name(page)) for page in USER_PAGES])
def test_page_is_short_or_has_a_reason(page) -> None:
    lines = len(page.read_text().splitlines())
    assert (lines > LINES_MAX) == (page.name in LONGER), f"{lines} lines"
