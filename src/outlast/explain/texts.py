"""Read the texts as named entries."""

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
"""The file that holds the entries of each kind."""

PAGES = {
    "parked": "errors-runs.md",
    "alert": "runbook.md",
    "exit code": "exit-codes.md",
    "check": "doctor-checks.md",
}
"""The page of docs/ that shows the entries of each kind, except for errors."""

ERROR_PAGES = {
    "Calls and values": "errors-calls.md",
    "Ids and states": "errors-calls.md",
    "Full queues, drains and lost ownership": "errors-queues.md",
    "Steps and streams": "errors-steps.md",
    "Ready-made effects": "errors-steps.md",
    "How a run ends or stops": "errors-runs.md",
    "Stores": "errors-stores.md",
    "The remote client": "errors-stores.md",
    "Commands": "errors-commands.md",
}
"""The page of docs/ that shows the errors of each group."""

PARTS = {
    "alert": ("Urgent?", "Look.", "Decide.", "Afterwards.", "Silence."),
    **dict.fromkeys(
        ("error", "parked", "exit code", "check"),
        ("Looks like.", "Cause.", "Remedy.", "Meanwhile."),
    ),
}
"""The labels that follow each entry's first sentence, in this order."""

CLOSE_MAX = 5
_HEADING = re.compile(r"^(##?) (.+)\n((?:(?!##? ).*\n?)*)", re.MULTILINE)
_LABEL = re.compile(r"^\*\*(.+?)\*\*[ \n]?", re.MULTILINE)


class Entry(NamedTuple):
    """A name and its explanation in Markdown. The summary is one sentence."""

    kind: str
    name: str
    summary: str
    body: str
    group: str = ""
    """The heading above the entry in its file, if there is one."""

    @property
    def parts(self) -> dict[str, str]:
        """Return the body's parts, keyed by label without the full stop."""
        labels = list(_LABEL.finditer(self.body))
        ends = [*(label.start() for label in labels[1:]), len(self.body)]
        found = zip(labels, ends, strict=True)
        return {
            label[1].rstrip("."): self.body[label.end() : end].strip("\n") for label, end in found
        }

    @property
    def title(self) -> str:
        """Return the entry's heading on a page."""
        before = {"parked": "Parked: ", "exit code": "Exit code ", "check": "Check: "}
        return before.get(self.kind, "") + self.name

    @property
    def anchor(self) -> str:
        """Return the anchor of that heading."""
        return anchor(self.title)

    @property
    def page(self) -> str:
        """Return the page of docs/ that shows the entry, with its anchor."""
        file = ERROR_PAGES[self.group] if self.kind == "error" else PAGES[self.kind]
        return f"{file}#{self.anchor}"


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site generate it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries, grouped by kind, in the order of the files."""
    return tuple(entry for kind, file in FILES.items() for entry in _read(kind, file))


def _read(kind: str, file: str) -> list[Entry]:
    text = resources.files("outlast.explain").joinpath(file).read_text(encoding="utf-8")
    found: list[Entry] = []
    group = ""
    for mark, heading, body in _HEADING.findall(text):
        if mark == "#":
            group = heading
        else:
            summary, _, rest = body.strip().partition("\n\n")
            found.append(Entry(kind, heading, summary, rest, group))
    return found


STATUSES = {
    "failed": "runfailed",
    "cancelled": "runcancelled",
    "parked": "runparked",
    "dead": "rundead",
}
"""The entry for each status in `outlast runs`: the error that waiting for such a run raises."""


def find(name: str) -> Entry | None:
    """Find an entry by its name, ignoring case.

    The name may carry its module, as in a traceback or a journal, and surrounding punctuation.
    """
    bare = name.strip(" \t\r\n.:`").removeprefix("outlast explain ")
    wanted = re.split(r"[.:]", bare)[-1].strip().casefold()
    wanted = STATUSES.get(wanted, wanted)
    return next((entry for entry in entries() if entry.name.casefold() == wanted), None)


def close(name: str) -> list[str]:
    """Return similar names, the closest first."""
    names = {entry.name.casefold(): entry.name for entry in entries()}
    wanted = name.strip().casefold()
    inside = [found for found in names if len(wanted) > 2 and (wanted in found or found in wanted)]
    like = difflib.get_close_matches(wanted, names, CLOSE_MAX)
    return [names[found] for found in dict.fromkeys([*like, *inside])][:CLOSE_MAX]
