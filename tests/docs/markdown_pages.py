"""The pages that people read, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted(
        path
        for name in ("bench", "deploy", "examples", "upstream")
        for path in (ROOT / name).rglob("*.md")
    ),
]
FENCE = re.compile(
    r"^(?P<ticks>```+)(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=ticks)$", re.MULTILINE | re.DOTALL
)
TITLE = re.compile(r"\btitle=\"(?P<title>[^\"]+)\"")
MODULES = {
    "outlast": "reference-outlast",
    "outlast.sync": "reference-sync",
    "outlast.effects": "reference-effects",
    "outlast.fencing": "reference-fencing",
    "outlast.integrations.pydantic_ai": "reference-pydantic-ai",
    "outlast.integrations.ag_ui": "reference-ag-ui",
    "outlast.integrations.ai_sdk": "reference-ai-sdk",
    "outlast.integrations.langgraph": "reference-langgraph",
    "outlast.integrations.openai_agents": "reference-openai-agents",
    "outlast.integrations.claude_agent": "reference-claude-agent",
    "outlast.client": "reference-client",
    "outlast.client.sync": "reference-client-sync",
    "outlast.http": "reference-http",
    "outlast.logs": "reference-logs",
    "outlast.settings": "reference-settings",
    "outlast.testing": "reference-testing",
    "outlast.testing.conformance": "reference-conformance",
    "outlast.testing.servers": "reference-testing",
}
"""Public modules, and the page of the reference that has each."""


@dataclass(frozen=True)
class Block:
    """A block of code: its language and title as the fence says them, and the line of the page where it begins."""

    language: str
    title: str
    text: str
    line: int


def fences(page: Path) -> Iterator[Block]:
    """In the order of the page."""
    text = page.read_text()
    for found in FENCE.finditer(text):
        language, _, rest = found["info"].strip().partition(" ")
        title = TITLE.search(rest)
        line = text.count("\n", 0, found.start()) + 1
        yield Block(language, title["title"] if title else "", found["text"], line)


def prose(page: Path) -> str:
    """The page without its fences; what is left has as many lines as before."""
    return FENCE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+?)\s*$", prose(page), re.MULTILINE)


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading; of one with a link in it, that of the words shown."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))
