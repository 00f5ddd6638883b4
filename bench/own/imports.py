"""`import outlast`, in processes that have imported nothing else; and asyncio, which it cannot do without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

PROCESSES = 7


def imports(folder: Path) -> dict[str, float]:
    _seconds("outlast", folder)  # compiles, where nobody has imported this version yet
    return {
        f"{module}_seconds": median(_seconds(module, folder) for _ in range(PROCESSES))
        for module in ("outlast", "asyncio")
    }


def _seconds(module: str, folder: Path) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True
    )
    return float(done.stdout)
