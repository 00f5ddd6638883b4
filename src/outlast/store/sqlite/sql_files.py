"""Read SQL statements from files, each under a line `-- name: NAME`.

A name in lower case is a fragment: `{fragment}` in a statement or in another fragment stands for
its text. Comments between the name and the statement are for readers and are left out.
"""

from __future__ import annotations

import re
from pathlib import Path

_SECTION = re.compile(r"^-- name: (\w+)\n(?:--.*\n)*", re.MULTILINE)
_WORD = re.compile(r"\{(\w+)\}")


class SqlFiles:
    """The statements of a folder of SQL files, by name."""

    def __init__(self, folder: Path, **fragments: str) -> None:
        """Read all files of the folder. `fragments` are parts that the program defines."""
        self._fragments = fragments
        self.texts: dict[str, str] = {}
        # Not importlib.resources, which takes longer to import than opening a store does.
        for file in folder.glob("*.sql"):
            parts = _SECTION.split(file.read_text(encoding="utf-8"))
            self.texts |= {
                name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)
            }

    def __call__(self, name: str, **fragments: object) -> str:
        """Return a statement with its fragments filled in. Raise KeyError for an unknown name."""

        def fragment(found: re.Match[str]) -> str:
            key = found[1]
            if key in fragments:
                return str(fragments[key])
            return self._fragments[key] if key in self._fragments else self(key, **fragments)

        return _WORD.sub(fragment, self.texts[name])
