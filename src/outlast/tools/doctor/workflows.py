"""Check the workflows of Python files, without importing them."""

from __future__ import annotations

from pathlib import Path

from outlast.errors import SettingsError
from outlast.execution.determinism import check_source
from outlast.tools.doctor.finding import Finding, Level, counted

CHECK = "determinism"


def determinism(file: Path) -> list[Finding]:
    """Return a warning for each call in workflow code whose result differs in a replay.

    Raise SettingsError if the file cannot be read.
    """
    try:
        count, suspects = check_source(file)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: this file cannot be read: {error}") from None
    except (SyntaxError, ValueError) as error:
        return [
            Finding(CHECK, Level.ERROR, f"this is not valid Python: {error}", "Fix it.", str(file))
        ]
    if not count:
        what = "no function here is decorated with @workflow"
        return [
            Finding(CHECK, Level.NOTE, what, "Name the file that defines the workflows.", str(file))
        ]
    if not suspects:
        what = f"{counted(count, 'workflow')}: no call whose answer differs in a replay was found"
        return [Finding(CHECK, Level.OK, what, where=str(file))]
    return [
        Finding(
            CHECK,
            Level.WARNING,
            f"workflow {one.workflow} calls {one.call}: its answer differs in a replay of the run",
            f"Use {one.instead} instead.",
            f"{one.file}:{one.line}",
        )
        for one in suspects
    ]
