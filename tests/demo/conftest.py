"""Plays of the demo that several tests judge. Each is played once in a test run."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from demo_tools import HOSTILE, HOSTILE_ENV_FILE, PACE, PLAY, PLAY_SECONDS, demo

from support.shared import make_once

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test of this folder the time that a whole play takes on a slow machine."""
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(PLAY_SECONDS + 100))


class Shown(NamedTuple):
    """A whole play by `outlast demo --json`."""

    folder: Path
    found: dict
    errors: str


@pytest.fixture(scope="session")
def shown(tmp_path_factory) -> Shown:
    """A play in a folder and an environment that would disturb any other program with Outlast."""

    def make(folder: Path) -> None:
        (folder / ".env").write_text(HOSTILE_ENV_FILE)
        (folder / "queue.py").write_text("raise SystemExit('a module of the folder was imported')")
        (folder / "outlast-demo.db.bak").write_text("not the demo's")
        done = demo(folder, "--json", **HOSTILE)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "found.json").write_text(done.stdout)
        (folder / "errors.txt").write_text(done.stderr)

    folder = make_once(tmp_path_factory, "demo", make)
    found = json.loads((folder / "found.json").read_text())
    return Shown(folder, found, (folder / "errors.txt").read_text())


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
            cwd=ROOT, check=True, capture_output=True, timeout=PLAY_SECONDS,
        )  # fmt: skip
        (wheel,) = folder.glob("*.whl")
        place = folder / "venv"
        venv.create(place, with_pip=False)
        site = next(place.glob("lib/python*/site-packages"))
        for name in needed("outlast", set()):
            for file in distribution(name).files or ():
                if ".." not in file.parts and file.suffix != ".pyc":
                    (site / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(str(file.locate()), site / file)
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet", "--no-index", "--no-deps", str(wheel)],
            check=True, timeout=PLAY_SECONDS,
        )  # fmt: skip

    return make_once(tmp_path_factory, "wheel", make) / "venv"


@pytest.fixture(scope="session")
def recorded(environment, tmp_path_factory) -> Path:
    """The folder of a play by the wheel alone, with its picture, its transcript and its output."""

    def make(folder: Path) -> None:
        (folder / "demo.new").write_text("somebody's")
        env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
        words = [
            environment / "bin" / "python",
            "-P",
            "-c",
            PLAY,
            "demo",
            "--pace",
            PACE,
            "--record",
            "demo.svg",
        ]
        done = subprocess.run(
            words, cwd=folder, env=env, capture_output=True, text=True, timeout=PLAY_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert all(line.startswith("outlast: ") for line in done.stderr.splitlines()), done.stderr
        (folder / "output.txt").write_text(done.stdout)

    return make_once(tmp_path_factory, "recorded", make)
