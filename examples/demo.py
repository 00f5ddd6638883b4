"""`make demo`: a program is killed with SIGKILL in the middle, started again, and goes on where it was.

It leaves a store behind, outlast-demo.db, to look at with `outlast show`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from outlast.store.address import store_at

HERE = Path(__file__).parent
ADDRESS = "sqlite:///outlast-demo.db"


def start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, HERE / "report.py"], env={**os.environ, "OUTLAST_STORE": ADDRESS}, text=True
    )


def recorded() -> int:
    """How many steps are in the journal by now."""
    if not Path("outlast-demo.db").exists():
        return 0
    store = store_at(ADDRESS)
    store.open()
    try:
        row = store.run("report-1")
        return len(store.journal(row.pk)) if row else 0
    finally:
        store.close()


def main() -> int:
    for left in Path().glob("outlast-demo.db*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    print("1. A workflow of five steps starts.")
    first = start()
    deadline = time.monotonic() + 30
    while recorded() < 3 and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)  # into the middle of the next step
    print("2. Its process is killed with SIGKILL. No handler, no clean-up, no warning.")
    first.send_signal(signal.SIGKILL)
    first.wait()
    print("3. The same program is started again.")
    code = start().wait()
    print("4. What happened, from the journal:\n")
    subprocess.run([sys.executable, "-m", "outlast", "show", "report-1", "--store", ADDRESS], check=True)
    print(
        f"\nOnly the step under way was done again. Look closer: {sys.executable} -m outlast runs --store {ADDRESS}"
    )
    return code


if __name__ == "__main__":
    raise SystemExit(main())
