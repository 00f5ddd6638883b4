"""Check the workflows of Python files, without importing them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from outlast.errors import SettingsError
from outlast.execution.determinism import check_source
from outlast.tools.doctor.finding import Finding, counted, error, note, ok, warning


def determinism(file: Path) -> Iterator[Finding]:
    """Yield a warning for each call in workflow code whose result differs in a replay.

    Raise SettingsError if the file cannot be read.
    """
    where = str(file)
    try:
        count, suspects = check_source(file)
    except (OSError, UnicodeDecodeError) as failure:
        raise SettingsError(f"{file}: this file cannot be read: {failure}") from None
    except (SyntaxError, ValueError) as failure:
        yield error(f"this is not valid Python: {failure}", "Fix it.", where)
        return
    if not count:
        what = "no function here is decorated with @workflow"
        yield note(what, "Name the file that defines the workflows.", where)
    elif not suspects:
        what = f"{counted(count, 'workflow')}: no call whose answer differs in a replay was found"
        yield ok(what, where)
    for one in suspects:
        yield warning(
            f"workflow {one.workflow} calls {one.call}: its result differs when the run is "
            "replayed",
            f"Use {one.instead} instead.",
            f"{one.file}:{one.line}",
        )
