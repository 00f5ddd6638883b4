"""Find phrases that a native engineer would not write. Part of `make lint`.

`python scripts/prose.py` reads the documentation and the source, prints each place with a better
wording, and exits with 1 if there is any. Add a phrase when a reader stumbles over it.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTEAD = {
    r"whoever": "name the component or the person",
    r"somebody": "someone, a person, another process",
    r"anew": "again",
    r"mend(?:ed|s|ing)?": "fix",
    r"(?:is|are) (?:said|told)": "say what happens: raises, logs, shows, gets",
    r"it is found out": "Outlast verifies",
    r"so many": "this many, or the number",
    r"in its hands|in their hands": "that it holds",
    r"(?:given|gives?|giving) back": "release",
    r"as it comes": "by default",
    r"(?:strike|strikes|struck) off": "deregister",
    r"by chance": "at random",
    r"on its way out": "shutting down",
    r"taken? for dead": "declared dead",
    r"under way": "in flight, running",
    r"nobody knows": "it is unknown",
    r"at one look": "in one read",
    r"(?:whose|the) ways? in": "how it is reached",
    r"is no (?:form|number|role|suspect|time)": "is not a",
    r"wins? over": "override",
    r"any more(?=[.,:;)]|$| (?:for|here)\b)": "no longer",
    r"(?<=, )also(?= (?:after|by|for|from|if|in|inside|on|over|when|while|with)\b)": "even",
    r"open already": "already open",
    r"is already open; make": "is already open. Create",
    r"(?<!_)given_back": "released",
    r"in_hand": "in_flight",
    r"(?<=# )read on": "Related",
    r"belongs? into": "belongs in",
    r"as without": "as if there were no",
}
"""Phrases in pages, messages, docstrings and comments."""

INSTEAD_FOR_USERS = {
    r"of (?:its|their) own": "its own, separate",
    r"by (?:itself|themselves)": "automatically, without help",
}
"""Phrases in the text of pages for users."""

OF_PROJECT = re.compile(r"docs/(?:architecture|glossary)|src/|tests/|bench/|upstream/|SECURITY\.md")
READ = ("*.md", "src/*.py", "src/*.md", "examples/*.py", "deploy/*")


def main() -> None:
    found = [place for path in files() for place in places(path)]
    print("\n".join(found))
    if found:
        sys.exit(f"{len(found)} phrases to reword. scripts/prose.py has the list of them.")


def files() -> Iterator[Path]:
    """Yield the files of the repository that people read."""
    listed = subprocess.run(
        ["git", "ls-files", *READ], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file():
            yield path


def places(path: Path) -> Iterator[str]:
    """Yield the places of a file where a phrase occurs, each with a better wording."""
    name = str(path.relative_to(ROOT))
    for_users = path.suffix == ".md" and not OF_PROJECT.match(name)
    in_fence = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        in_fence ^= line.startswith("```")
        phrases = INSTEAD | INSTEAD_FOR_USERS if for_users and not in_fence else INSTEAD
        for match in _pattern(tuple(phrases)).finditer(line):
            instead = phrases[list(phrases)[int(str(match.lastgroup)[1:])]]
            yield f"{name}:{number}: {match[0]!r}: {instead}"


@functools.cache
def _pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    named = "|".join(f"(?P<p{number}>{phrase})" for number, phrase in enumerate(phrases))
    return re.compile(rf"\b(?:{named})(?!\w)", re.IGNORECASE)


if __name__ == "__main__":
    main()
