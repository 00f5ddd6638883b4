"""Do expensive set-up once per test run, also where several xdist workers need it."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

FULL = os.environ.get("OUTLAST_TEST_STORES") == "all"
"""Whether this is `make stores`, which also runs the long forms of tests that `make test` runs in a short one."""


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that `make` has filled.

    The first process of the test run that asks for it calls `make`; the others wait. It is called once, also
    if it fails: then every test that needs the folder fails.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, done = root / f"shared-{name}", root / f"shared-{name}.done"
    with (root / f"shared-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    assert done.exists(), f"{name} could not be made; another test has the reason"
    return folder
