"""Run examples/model_server.py with a gate: `gated_model_server.py PORT TOKENS`.

After TOKENS tokens it waits for the file `go` in its folder.
"""

import runpy
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "model_server.py"
SECONDS_PER_TOKEN = 0.01
port, tokens = sys.argv[1], int(sys.argv[2])
sent: list[float] = []
wait = time.sleep


def wait_at_gate(seconds: float) -> None:
    while len(sent) >= tokens and not Path("go").exists():
        wait(0.005)
    wait(seconds)
    sent.append(seconds)


time.sleep = wait_at_gate
sys.argv = [str(EXAMPLE), port, str(SECONDS_PER_TOKEN)]
runpy.run_path(str(EXAMPLE), run_name="__main__")
