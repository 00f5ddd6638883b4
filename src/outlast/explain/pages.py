"""Render docs/errors.md and docs/runbook.md from the texts of this package."""

from __future__ import annotations

from collections.abc import Iterable

from outlast.explain.texts import Entry, entries

_MADE = "<!-- Made by: outlast explain --write docs. The texts are in src/outlast/explain. -->"

_ERRORS = f"""\
{_MADE}

# Errors, and everything else with a name

Each error of Outlast names its entry here, in a note below its message (`outlast explain Backpressure`), and so do the command line and `outlast show`. The command prints the same text as this page, without a network and without a store;
`outlast explain` alone lists all names. `str(error)` does not have the note, and it is not recorded in a journal. (pytest's `match=` does look at notes: a pattern that ends with `$` must allow for it.)

Alerts are in the [runbook](runbook.md).
"""

_RUNBOOK = f"""\
{_MADE}

# Runbook

What to do when an [alert](deployment.md#alerts) fires, the one that hurts most first. `outlast explain NAME` prints a section, in a pod as well: each alert names it in its annotation `runbook`. All commands take `--store ADDRESS` where `OUTLAST_STORE` is not set. Those
that look change nothing, and a store of an older version than theirs is left as it is: only `outlast migrate`, a worker or a program [brings it forward](upgrading.md#a-new-release-of-outlast). [Errors](errors.md) has the errors, reasons and exit codes that are named here.

Three things hold in all of them: what is recorded is not lost by waiting; a run that stands still harms no other; and nothing below is made worse by looking first.
"""

_SECTIONS = {
    "error": ("Errors", "What a program may catch, and what commands end with."),
    "parked": ("Reasons of parked runs", "What `outlast show` says after `Parked:`. [Diverged](#diverged) is the fourth."),
    "exit code": ("Exit codes", "Of the command line, and of `run(...)` in a program of your own; from 63 on, below, of a process that was ended."),
    "check": ("Checks of the doctor", "What `outlast doctor` calls its findings: [doctor](doctor.md) has when each fires."),
}  # fmt: skip


def errors_page() -> str:
    sections = [
        f"## {title}\n\n{words}\n\n{_told((entry for entry in entries() if entry.kind == kind), '###')}"
        for kind, (title, words) in _SECTIONS.items()
    ]
    return "\n".join([_ERRORS, *sections])


def runbook_page() -> str:
    return f"{_RUNBOOK}\n{_told((entry for entry in entries() if entry.kind == 'alert'), '##')}"


PAGES = {"errors.md": errors_page, "runbook.md": runbook_page}


def _told(chosen: Iterable[Entry], mark: str) -> str:
    return "\n".join(
        f"{mark} {entry.title}\n\n{entry.summary}\n\n{entry.body}\n" for entry in chosen
    )
