"""Render the pages of docs/ that consist of the texts of this package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from outlast.explain.texts import ERROR_PAGES, anchor, entries
from outlast.explain.texts import PAGES as PAGE_OF_KIND

_MADE = "<!-- Made by: outlast explain --write docs. The texts are in src/outlast/explain. -->"

_ERRORS = f"""\
{_MADE}

# Errors

Every error of Outlast carries a note with the command that explains it, such as \
`outlast explain Backpressure`. The command line and `outlast show` print it too. The command \
prints the text of these pages and needs neither a network nor a store. `outlast explain` alone \
lists all names. [Exit codes](exit-codes.md), [checks of the doctor](doctor-checks.md) and \
[alerts](runbook.md) have separate pages.

`str(error)` does not contain the note, and the journal does not record it. pytest's `match=` does \
see notes, so a pattern that ends with `$` must allow for it.

A program may catch every error on these pages except `Evicted` and `Diverged`. A command prints \
the error and exits with [its code](exit-codes.md).
"""

_TITLES = {
    "errors-calls.md": "Errors of calls",
    "errors-queues.md": "Errors of queues and ownership",
    "errors-steps.md": "Errors of steps and effects",
    "errors-runs.md": "How runs end or stop",
    "errors-stores.md": "Errors of stores and the remote client",
    "errors-commands.md": "Errors of commands",
}

_EXIT_CODES = f"""\
{_MADE}

# Exit codes

These are the exit codes of the commands, and of `run(...)` in your program. A code from 63 on \
belongs to a process that was killed. `outlast explain 75` prints the same text.
"""

_CHECKS = f"""\
{_MADE}

# Checks of the doctor

`outlast doctor` makes these checks. [Doctor](doctor.md) shows how to run it. \
`outlast explain NAME` prints the same text.
"""

_RUNBOOK = f"""\
{_MADE}

# Runbook

What to do when an [alert](deployment.md#alerts) fires, most urgent first. \
`outlast explain NAME` prints the same section, even inside a pod. The `runbook` annotation of \
each alert contains the command. [Errors](errors.md) explains the errors and reasons named here, \
and [exit codes](exit-codes.md) the codes.

Pass `--store ADDRESS` to the commands if `OUTLAST_STORE` is not set. Commands that only read \
change nothing, not even the schema of an older store. Only `outlast migrate`, a worker or a \
program [migrates it](upgrading-outlast.md).

Three things always hold:

- Waiting loses nothing that is recorded.
- A stuck run harms no other run.
- Commands that only read are safe to run at any time.
"""

_PARKED = """\
## Reasons of parked runs

`outlast show` prints these after `Parked:`. The fourth reason is [Diverged](#diverged)."""


def errors_page() -> str:
    """Return the index of the errors by group. The groups are on the pages that it links to."""
    rows = [
        f"| [{group}]({page}#{anchor(group)}) | {_links('error', group)} |"
        for group, page in ERROR_PAGES.items()
    ]
    parked = f"{PAGE_OF_KIND['parked']}#reasons-of-parked-runs"
    rows.append(f"| [Reasons of parked runs]({parked}) | {_links('parked')} |")
    return "\n".join([_ERRORS, "| about | errors |", "|---|---|", *rows, ""])


def errors_page_of_groups(file: str) -> str:
    """Return a page of the errors with a section for each of its groups."""
    intro = "[Errors](errors.md) lists all errors. `outlast explain NAME` prints the same text."
    parts = [f"{_MADE}\n\n# {_TITLES[file]}\n\n{intro}\n"]
    parts += [
        f"## {group}\n\n{_rendered('error', '###', group)}"
        for group, page in ERROR_PAGES.items()
        if page == file
    ]
    if PAGE_OF_KIND["parked"] == file:
        parts.append(f"{_PARKED}\n\n{_rendered('parked', '###')}")
    return "\n".join(parts)


def exit_codes_page() -> str:
    return f"{_EXIT_CODES}\n{_rendered('exit code', '##')}"


def checks_page() -> str:
    links = _links("check").replace(f"({PAGE_OF_KIND['check']}#", "(#")
    return f"{_CHECKS}\n{links}.\n\n{_rendered('check', '##')}"


def runbook_page() -> str:
    return f"{_RUNBOOK}\n{_rendered('alert', '##')}"


PAGES: dict[str, Callable[[], str]] = {
    "errors.md": errors_page,
    **{file: partial(errors_page_of_groups, file) for file in _TITLES},
    "exit-codes.md": exit_codes_page,
    "doctor-checks.md": checks_page,
    "runbook.md": runbook_page,
}


def _links(kind: str, group: str = "") -> str:
    """Return links to the entries of a kind and group, by page and anchor."""
    return ", ".join(
        f"[{entry.name}]({entry.page})"
        for entry in entries()
        if (entry.kind, entry.group) == (kind, group)
    )


def _rendered(kind: str, mark: str, group: str = "") -> str:
    """Return the entries of a kind and group in Markdown, each below a heading with this mark."""
    return "\n".join(
        f"{mark} {entry.title}\n\n{entry.summary}\n\n{entry.body}\n"
        for entry in entries()
        if (entry.kind, entry.group) == (kind, group)
    )
