"""`outlast`: see, steer and execute runs from a shell."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the console script, which ends with SystemExit and a code of `exit_codes`."""
    from outlast.cli.exit_codes import INTERRUPTED

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Terminals whose encoding lacks a character show an escape instead.
            stream.reconfigure(errors="backslashreplace")
    try:
        from outlast.cli.app import command_line

        words = sys.argv[1:] if argv is None else list(argv)
        command_line(*words[:1])(args=words, prog_name="outlast")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(0)


__all__ = ["main"]
