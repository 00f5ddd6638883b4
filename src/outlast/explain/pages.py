"""Render docs/errors.md and docs/runbook.md from the texts of this package."""

from __future__ import annotations

from outlast.explain.texts import entries

_MADE = "<!-- Made by: outlast explain --write docs. The texts are in src/outlast/explain. -->"

_ERRORS = f"""\
{_MADE}

# Errors, exit codes and checks

Every error of Outlast carries a note with the command that explains it, such as \
`outlast explain Backpressure`. The command line and `outlast show` print it too. The command \
prints the text of this page and needs neither a network nor a store. `outlast explain` alone \
lists all names.

`str(error)` does not contain the note, and the journal does not record it. pytest's `match=` does \
see notes, so a pattern that ends with `$` must allow for it.

Alerts are in the [runbook](runbook.md).
"""

_RUNBOOK = f"""\
{_MADE}

# Runbook

What to do when an [alert](deployment.md#alerts) fires, most urgent first. \
`outlast explain NAME` prints the same section, also inside a pod; the `runbook` annotation of \
each alert contains the command. [Errors](errors.md) explains the errors, reasons and exit codes \
named here.

Pass `--store ADDRESS` to the commands if `OUTLAST_STORE` is not set. Commands that only read \
change nothing, not even the schema of an older store. Only `outlast migrate`, a worker or a \
program [migrates it](upgrading.md#a-new-release-of-outlast).

Three things always hold:

- Waiting loses nothing that is recorded.
- A stuck run harms no other run.
- Looking first makes nothing worse.
"""

_SECTIONS = {
    "error": ("Errors", "What a program may catch, and what commands exit with."),
    "parked": (
        "Reasons of parked runs",
        "What `outlast show` prints after `Parked:`. The fourth reason is [Diverged](#diverged).",
    ),
    "exit code": (
        "Exit codes",
        "Of the commands, and of `run(...)` in your program. From 63 on: of a killed process.",
    ),
    "check": (
        "Checks of the doctor",
        "The checks of `outlast doctor`. [Doctor](doctor.md) says when each one reports a problem.",
    ),
}


def errors_page() -> str:
    sections = [
        f"## {title}\n\n{words}\n\n{_rendered(kind, '###')}"
        for kind, (title, words) in _SECTIONS.items()
    ]
    return "\n".join([_ERRORS, *sections])


def runbook_page() -> str:
    return f"{_RUNBOOK}\n{_rendered('alert', '##')}"


PAGES = {"errors.md": errors_page, "runbook.md": runbook_page}


def _rendered(kind: str, mark: str) -> str:
    """Return the entries of a kind in Markdown, each below a heading with this mark."""
    return "\n".join(
        f"{mark} {entry.title}\n\n{entry.summary}\n\n{entry.body}\n"
        for entry in entries()
        if entry.kind == kind
    )
