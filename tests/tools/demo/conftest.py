"""Demos that several tests check. Each is run once in a test session."""

import itertools
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from demo_tools import (
    DEMO_SECONDS,
    DEMO_WITH_DOCUMENT,
    HOSTILE,
    HOSTILE_ENV_FILE,
    LOST_REPLY,
    PACE,
    agent,
    quick_demo,
)

from outlast.errors import StoreUnavailable
from outlast.store.sqlite.store import SQLiteStore
from outlast.tools.demo.facts import Facts
from support.shared import make_once

ROOT = Path(__file__).parents[3]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test of this folder the time that a whole demo takes on a slow machine."""
    for item in items:
        if item.nodeid.startswith("tests/tools/demo/"):
            item.add_marker(pytest.mark.timeout(DEMO_SECONDS + 100))


def needed(name: str, found: set[str]) -> set[str]:
    """Return the names of a distribution's requirements without extras, and of theirs."""
    for text in distribution(name).requires or ():
        what, _, marker = text.partition(";")
        one = re.match(r"[\w.-]+", what.strip())[0].lower()  # type: ignore[index]
        if one in found or not _applies(marker):
            continue
        found.add(one)
        needed(one, found)
    return found


def _applies(marker: str) -> bool:
    from packaging.markers import Marker

    return not marker or Marker(marker).evaluate({"extra": ""})


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> Path:
    """An environment with the built wheel, and copies of its dependencies."""

    def make(folder: Path) -> None:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
            cwd=ROOT, check=True, capture_output=True, timeout=DEMO_SECONDS,
        )  # fmt: skip
        (wheel,) = folder.glob("*.whl")
        place = folder / "venv"
        venv.create(place, with_pip=False)
        site = next(place.glob("lib/python*/site-packages"))
        for name in needed("outlast", set()):
            for file in distribution(name).files or ():
                if ".." not in file.parts and Path(str(file.locate())).exists():
                    (site / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(
                        str(file.locate()), site / file
                    )  # with its time, by which bytecode is valid
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet", "--no-index", "--no-deps", str(wheel)],
            check=True, timeout=DEMO_SECONDS,
        )  # fmt: skip

    return make_once(tmp_path_factory, "wheel", make) / "venv"


class Recorded(NamedTuple):
    """A whole demo by `outlast demo --record demo.svg`."""

    folder: Path
    document: dict
    """What `--json` would have printed."""
    output: str


@pytest.fixture(scope="session")
def recorded(environment, tmp_path_factory) -> Recorded:
    """Run a demo with the wheel alone, in a folder and an environment with settings for other programs."""

    def make(folder: Path) -> None:
        (folder / ".env").write_text(HOSTILE_ENV_FILE)
        (folder / "queue.py").write_text("raise SystemExit('a module of the folder was imported')")
        (folder / "outlast-demo.db.bak").write_text("not the demo's")
        (folder / "demo.new").write_text("somebody's")
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        }
        done = subprocess.run(
            [environment / "bin" / "python", "-P", "-c", DEMO_WITH_DOCUMENT, "demo", "--pace", PACE, "--record", "demo.svg"],
            cwd=folder, env=env | HOSTILE, capture_output=True, text=True, timeout=DEMO_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert all(line.startswith("outlast: ") for line in done.stderr.splitlines()), done.stderr
        (folder / "output.txt").write_text(done.stdout)

    folder = make_once(tmp_path_factory, "recorded", make)
    document = json.loads((folder / "document.json").read_text())
    return Recorded(folder, document, (folder / "output.txt").read_text())


@pytest.fixture(scope="session")
def good(tmp_path_factory) -> Facts:
    """Return the facts of a demo in which every claim holds.

    The reply to a message is lost, so that the agent must verify it, and every other read of progress fails.
    """

    def make(folder: Path) -> None:
        asked, real = itertools.count(), SQLiteStore.progress

        def progress(store: SQLiteStore, run: int) -> dict[str, str]:
            if next(asked) % 2:
                raise StoreUnavailable("it is busy")
            return real(store, run)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SQLiteStore, "progress", progress)
            facts = quick_demo(folder, agent(folder, *LOST_REPLY))
        assert next(asked) > 2, "it waits for an answer to be saved"
        (folder / "facts").write_bytes(pickle.dumps(facts))

    return pickle.loads((make_once(tmp_path_factory, "good-demo", make) / "facts").read_bytes())
