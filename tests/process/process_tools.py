"""Programs of the process tests: they print JSON values, one per line."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import processes
from support.processes import clean_environment

PROGRAMS = Path(__file__).parent / "programs"


class Program(processes.Program):
    """`python PROGRAM FOLDER ARGS`, where PROGRAM is a file of `programs/` or an absolute path."""

    def __init__(
        self, name: str, folder: Path, *args: object, env: Mapping[str, str] | None = None
    ) -> None:
        words = [sys.executable, "-W", "error", PROGRAMS / name, folder, *args]
        super().__init__(words, folder, env=clean_environment(**(env or {})))

    @property
    def messages(self) -> list[Any]:
        """The values it has printed so far."""
        return [json.loads(line) for line in self.lines]

    def wait_for_message(self, message: Any = None) -> Any:
        """Wait until it has printed `message`, or anything at all. Return the last value."""
        return self.wait_until(lambda: self._has_said(message) and self.messages[-1:])[0]

    def _has_said(self, message: Any) -> bool:
        return message in self.messages if message is not None else bool(self.messages)

    def result(self) -> Any:
        """Wait until it ends with exit code 0. Return the last value it printed."""
        assert self.wait() == 0, self.describe()
        return self.messages[-1]
