"""Run the ledger in a process of its own, and read what it has recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlast.tools.chaos.ledger import LOG, LogTorn, lines
from outlast.tools.chaos.ledger_summary import LedgerSummary
from outlast.tools.chaos.options import ChaosFailed


class LedgerProcess:
    """The running ledger of an experiment."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, port: int) -> None:
        self._process = process
        self._folder = folder
        self.port = port

    def check_alive(self) -> None:
        """Raise ChaosFailed if the process has exited by itself."""
        if self._process.poll() is not None:
            raise ChaosFailed(
                f"the ledger exited by itself with {self._process.returncode}, and what happened "
                f"since is unknown: see {self._folder / 'ledger.log'}"
            )

    def summary(self) -> LedgerSummary:
        """Return what the ledger has recorded.

        Raise ChaosFailed if the process died or its log is incomplete.
        """
        self.check_alive()
        try:
            return LedgerSummary(lines(self._folder / LOG))
        except LogTorn as error:
            raise ChaosFailed(f"the ledger no longer answers: {error}") from None


@contextmanager
def run_ledger(folder: Path) -> Iterator[LedgerProcess]:
    """Start the ledger, which writes to `folder`, and kill it after the block."""
    with (folder / "ledger.log").open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own arguments
            [sys.executable, "-m", "outlast.tools.chaos.ledger", str(os.getpid()), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise ChaosFailed(f"the ledger did not start: see {folder / 'ledger.log'}")
            yield LedgerProcess(process, folder, int(line))
        finally:
            process.kill()
