"""The texts, as entries with names."""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

FILES = {
    "error": "errors.md",
    "parked": "parked.md",
    "alert": "alerts.md",
    "exit code": "exits.md",
    "check": "checks.md",
}
"""By what has the names."""

PARTS = {
    "alert": ("Urgent?", "Look.", "Decide.", "Afterwards.", "Silence."),
    **dict.fromkeys(
        ("error", "parked", "exit code", "check"),
        ("Looks like.", "Cause.", "Remedy.", "Meanwhile."),
    ),
}
"""What each entry says after its first sentence, in this order."""

CLOSE_MAX = 5
_LABEL = re.compile(r"^\*\*(.+?)\*\*[ \n]?", re.MULTILINE)


class Entry(NamedTuple):
    """A name, and what there is to say of it, in Markdown. Its summary is a sentence."""

    kind: str
    name: str
    summary: str
    body: str

    @property
    def parts(self) -> dict[str, str]:
        """The body by its labels, without their full stops."""
        labels = list(_LABEL.finditer(self.body))
        ends = [*(label.start() for label in labels[1:]), len(self.body)]
        found = zip(labels, ends, strict=True)
        return {
            label[1].rstrip("."): self.body[label.end() : end].strip("\n") for label, end in found
        }

    @property
    def title(self) -> str:
        """As a heading of a page."""
        before = {"parked": "Parked: ", "exit code": "Exit code ", "check": "Check: "}
        return before.get(self.kind, "") + self.name

    @property
    def anchor(self) -> str:
        """Of that heading, as GitHub and the site make it."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")


@cache
def entries() -> tuple[Entry, ...]:
    """All there are, by kind, as the files have them."""
    return tuple(entry for kind, file in FILES.items() for entry in _read(kind, file))


def _read(kind: str, file: str) -> list[Entry]:
    text = resources.files("outlast.explain").joinpath(file).read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    return [_entry(kind, name, body) for name, body in zip(parts[::2], parts[1::2], strict=True)]


def _entry(kind: str, name: str, text: str) -> Entry:
    summary, _, body = text.strip().partition("\n\n")
    return Entry(kind, name, summary, body)


STATUSES = {
    "failed": "runfailed",
    "cancelled": "runcancelled",
    "parked": "runparked",
    "dead": "rundead",
}
"""What `outlast runs` says of a run, by the error that whoever waits for it gets."""


def find(name: str) -> Entry | None:
    """By its name in any case, also with the module before it, as a traceback or a journal has it, and with what a sentence has around it."""
    bare = name.strip(" \t\r\n.:`").removeprefix("outlast explain ")
    wanted = re.split(r"[.:]", bare)[-1].strip().casefold()
    wanted = STATUSES.get(wanted, wanted)
    return next((entry for entry in entries() if entry.name.casefold() == wanted), None)


def close(name: str) -> list[str]:
    """Names like this one, the nearest first."""
    names = {entry.name.casefold(): entry.name for entry in entries()}
    wanted = name.strip().casefold()
    inside = [found for found in names if len(wanted) > 2 and (wanted in found or found in wanted)]
    like = difflib.get_close_matches(wanted, names, CLOSE_MAX)
    return [names[found] for found in dict.fromkeys([*like, *inside])][:CLOSE_MAX]
