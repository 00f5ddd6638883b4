"""The same workflows, and what the collector still has to go through when the process ends."""

import atexit
import gc
from pathlib import Path

from drain_flows import chain, gated, sleeper

__all__ = ["chain", "gated", "sleeper"]


@atexit.register
def tell() -> None:
    Path("collected").write_text(str(len(gc.get_objects())))
