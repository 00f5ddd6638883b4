"""What a page shows, held against what was printed: `…` is what varies."""

import re

ANYTHING = "…"


def matches(expected: str, printed: str) -> bool:
    """`…` alone on a line is any number of lines, also none; inside a line it is anything but a line's end."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == ANYTHING else f"{line_pattern(line)}\n"
        for line in _trimmed(expected)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _trimmed(printed))) is not None


def line_pattern(line: str) -> str:
    return ".*".join(map(re.escape, line.split(ANYTHING)))


def _trimmed(text: str) -> list[str]:
    """Without blank lines at both ends, and with one blank for several: the width of a column follows what varies in it."""
    return [" ".join(line.split()) for line in text.strip().splitlines()]
