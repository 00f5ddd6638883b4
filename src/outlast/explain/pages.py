"""Render docs/errors.md and docs/runbook.md from the texts of this package."""

from __future__ import annotations

from outlast.explain.texts import entries

_MADE = "<!-- Made by: outlast explain --write docs. The texts are in src/outlast/explain. -->"

_ERRORS = f"""\
{_MADE}

# Errors, and everything else with a name

Each error of Outlast names its entry here, in a note below its message \
(`outlast explain Backpressure`). So do the command line and `outlast show`. The command prints \
the same text as this page, without a network and without a store. `outlast explain` alone lists \
all names.

`str(error)` does not contain the note, and a journal does not record it. (pytest's `match=` does \
look at notes: a pattern that ends with `$` must allow for it.)

Alerts are in the [runbook](runbook.md).
"""

_RUNBOOK = f"""\
{_MADE}

# Runbook

What to do when an [alert](deployment.md#alerts) fires, the most urgent first. \
`outlast explain NAME` prints a section, in a pod as well: each alert names it in its annotation \
`runbook`. [Errors](errors.md) explains the errors, reasons and exit codes that are named here.

All commands take `--store ADDRESS` where `OUTLAST_STORE` is not set. Commands that only read \
change nothing, not even the schema of an older store: only `outlast migrate`, a worker or a \
program [migrates it](upgrading.md#a-new-release-of-outlast).

Three things always hold: waiting loses nothing that is recorded; a run that is stuck harms no \
other run; looking first makes nothing worse.
"""

_SECTIONS = {
    "error": ("Errors", "What a program may catch, and what commands end with."),
    "parked": (
        "Reasons of parked runs",
        "What `outlast show` says after `Parked:`. [Diverged](#diverged) is the fourth.",
    ),
    "exit code": (
        "Exit codes",
        "Of the command line, and of `run(...)` in your program. From 63 on: of a killed process.",
    ),
    "check": (
        "Checks of the doctor",
        "The names of the findings of `outlast doctor`. [doctor](doctor.md) says when each fires.",
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
