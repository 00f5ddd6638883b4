"""Find phrases that a native engineer would not write. Part of `make lint`.

`python scripts/prose.py` reads the documentation and the source, prints each place with a better
wording, and exits with 1 if there is any. Add a phrase when a reader stumbles over it.
"""

from __future__ import annotations

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
}
PHRASES = re.compile(
    r"\b(?:" + "|".join(f"(?P<p{n}>{phrase})" for n, phrase in enumerate(INSTEAD)) + r")\b",
    re.IGNORECASE,
)
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
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for match in PHRASES.finditer(line):
            instead = list(INSTEAD.values())[int(str(match.lastgroup)[1:])]
            yield f"{path.relative_to(ROOT)}:{number}: {match[0]!r}: {instead}"


if __name__ == "__main__":
    main()
