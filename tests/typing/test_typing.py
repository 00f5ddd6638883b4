"""The public types satisfy mypy and pyright in strict mode.

`ok*.py` hold what the checkers must infer, `errors*.py` what they must reject. Each checker runs once.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import outlast

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = sorted(str(path) for path in HERE.glob("*.py") if not path.name.startswith("test_"))

# Without a cache a checker reads all of Outlast and its dependencies. On a busy machine that takes minutes.
pytestmark = pytest.mark.timeout(900)


def check(*command: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_file_with_examples_is_checked():
    assert [Path(file).name for file in FILES] == [
        "errors.py",
        "errors_effects.py",
        "ok.py",
        "ok_client.py",
        "ok_effects.py",
        "ok_sessions.py",
        "ok_sync.py",
    ]


def test_package_is_marked_as_typed():
    assert Path(outlast.__file__).with_name("py.typed").is_file()


def test_mypy_infers_and_rejects_what_the_examples_say():
    # With the options of `make types`, so that the two share one cache.
    check("mypy", "--config-file", str(ROOT / "pyproject.toml"), *FILES)


def test_pyright_infers_and_rejects_what_the_examples_say():
    check("pyright", "--project", str(HERE), "--pythonpath", sys.executable)
