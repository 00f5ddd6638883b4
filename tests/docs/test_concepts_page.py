"""What docs/concepts.md says of statuses and of the words is what the code and the design have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from outlast.settings import Settings
from outlast.store.rows import Status

PAGE = (Path(__file__).parents[2] / "docs/concepts.md").read_text()
WORDS = (
    "store", "workflow", "run", "step", "life", "journal", "effect", "compensation", "unit", "progress", "message", "queue", "worker", "lease",
    "fence", "drain", "grace", "dead letter", "parked", "session", "checkpoint",
)  # fmt: skip


def test_the_table_of_statuses_has_all_of_them() -> None:
    table = PAGE.partition("| status | means |")[2].partition("\n\n")[0]
    named = [
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert sorted(named) == sorted(get_args(Status))


def test_each_word_has_a_heading_or_stands_out_where_it_is_explained() -> None:
    told = [
        word.lower()
        for word in re.findall(r"^## (.+)$|\*\*([^*]+)\*\*", PAGE, re.MULTILINE)
        for word in word
        if word
    ]
    assert [word for word in WORDS if not any(re.search(rf"\b{word}\b", one) for one in told)] == []


def test_the_numbers_are_the_defaults() -> None:
    settings = Settings()
    assert f"`max_attempts` times ({settings.max_attempts})" in PAGE
    assert f"It lasts {settings.lease:g} seconds and is renewed while the worker lives" in PAGE
    assert f"before its **grace** ends ({settings.grace:g} seconds)" in PAGE
