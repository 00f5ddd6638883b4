"""The public types hold under both strict checkers: what they must infer (`ok*.py`) and refuse (`errors.py`)."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = sorted(str(path) for path in HERE.glob("*.py") if not path.name.startswith("test_"))


def check(*command: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_there_is_something_to_check():
    assert [Path(file).name for file in FILES] == [
        "errors.py",
        "errors_effects.py",
        "ok.py",
        "ok_effects.py",
        "ok_sessions.py",
        "ok_sync.py",
    ]


def test_mypy_infers_what_is_asserted_and_refuses_what_is_wrong():
    # A cache of its own, kept: these are other options than those of `make types`.
    check("mypy", "--strict", "--config-file=", "--cache-dir", str(ROOT / ".mypy_cache/typing"), *FILES)


def test_pyright_infers_what_is_asserted_and_refuses_what_is_wrong():
    check("pyright", "--project", str(HERE), "--pythonpath", sys.executable)
