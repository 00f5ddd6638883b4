"""The glossary names files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_of_the_glossary_exists():
    names = re.findall(r"`([a-z_/]+\.py)`", (ROOT / "docs/glossary.md").read_text())
    assert len(names) > 20
    assert [name for name in names if not (ROOT / "src/outlast" / name).is_file()] == []
