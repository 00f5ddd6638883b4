"""The same workflows. At the exit, write down how many objects the garbage collector has to visit."""

import atexit
import gc
from pathlib import Path

from drain_flows import chain, gated, sleeper

__all__ = ["chain", "gated", "sleeper"]


@atexit.register
def tell() -> None:
    Path("collected").write_text(str(len(gc.get_objects())))
