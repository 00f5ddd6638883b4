"""Render the pages of docs/ that consist of the texts of this package."""

from __future__ import annotations

from outlast.explain.texts import anchor, entries

_MADE = "<!-- Made by: outlast explain --write docs. The texts are in src/outlast/explain. -->"

_ERRORS = f"""\
{_MADE}

# Errors

Every error of Outlast carries a note with the command that explains it, such as \
`outlast explain Backpressure`. The command line and `outlast show` print it too. The command \
prints the text of this page and needs neither a network nor a store. `outlast explain` alone \
lists all names. [Exit codes](exit-codes.md), [checks of the doctor](doctor-checks.md) and \
[alerts](runbook.md) have pages of their own.

`str(error)` does not contain the note, and the journal does not record it. pytest's `match=` does \
see notes, so a pattern that ends with `$` must allow for it.

A program may catch every error on this page except `Evicted` and `Diverged`. A command prints \
the error and exits with [its code](exit-codes.md).
"""

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
`outlast explain NAME` prints the same section, also inside a pod; the `runbook` annotation of \
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
    """Return the page of the errors: an index by group, and a section for each group."""
    groups = dict.fromkeys(entry.group for entry in entries() if entry.kind == "error")
    sections = [f"## {group}\n\n{_rendered('error', '###', group)}" for group in groups]
    rows = [f"| [{group}](#{anchor(group)}) | {_links('error', group)} |" for group in groups]
    rows.append(f"| [Reasons of parked runs](#reasons-of-parked-runs) | {_links('parked')} |")
    index = "\n".join(["| about | errors |", "|---|---|", *rows])
    parked = f"{_PARKED}\n\n{_rendered('parked', '###')}"
    return "\n".join([_ERRORS, f"{index}\n", *sections, parked])


def exit_codes_page() -> str:
    return f"{_EXIT_CODES}\n{_rendered('exit code', '##')}"


def checks_page() -> str:
    return f"{_CHECKS}\n{_links('check')}.\n\n{_rendered('check', '##')}"


def runbook_page() -> str:
    return f"{_RUNBOOK}\n{_rendered('alert', '##')}"


PAGES = {
    "errors.md": errors_page,
    "exit-codes.md": exit_codes_page,
    "doctor-checks.md": checks_page,
    "runbook.md": runbook_page,
}


def _links(kind: str, group: str = "") -> str:
    return ", ".join(
        f"[{entry.name}](#{entry.anchor})"
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
