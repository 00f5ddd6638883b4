"""`pip install outlast && outlast demo`: the built wheel and its base dependencies, and nothing else."""

import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from demo_tools import PACE

ROOT = Path(__file__).parents[2]
EXTRAS = ("httpx", "starlette", "uvicorn", "psycopg", "redis", "prometheus_client", "opentelemetry", "yaml")


def needed(name: str, found: set[str]) -> set[str]:
    """The names of a distribution's own requirements, without extras, and theirs."""
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


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """An environment in which the wheel is installed, with copies of what it asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True, timeout=100,
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
        check=True, timeout=100,
    )  # fmt: skip
    return place


def test_nothing_of_the_extras_is_there(environment):
    script = (
        "import importlib.util, sys; print([one for one in sys.argv[1:] if importlib.util.find_spec(one)])"
    )
    done = subprocess.run(
        [environment / "bin" / "python", "-c", script, *EXTRAS],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"


def test_the_wheel_alone_shows_the_demo(environment, tmp_path):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    done = subprocess.run(
        [environment / "bin" / "outlast", "demo", "--pace", PACE], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    command = done.stdout.strip().split("\n")[-1].removeprefix("Look closer").split()
    shown = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert "1 death" in shown.stdout
