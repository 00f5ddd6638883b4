"""Run examples/model_server.py with a gate: `gated_model_server.py PORT TOKENS SECONDS`.

After TOKENS tokens it waits for the file `go` in its folder. A token takes SECONDS.
"""

import runpy
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "model_server.py"
port, tokens, seconds_per_token = sys.argv[1], int(sys.argv[2]), sys.argv[3]
sent: list[float] = []
wait = time.sleep


def wait_at_gate(seconds: float) -> None:
    while len(sent) >= tokens and not Path("go").exists():
        wait(0.005)
    wait(seconds)
    sent.append(seconds)


time.sleep = wait_at_gate
sys.argv = [str(EXAMPLE), port, seconds_per_token]
runpy.run_path(str(EXAMPLE), run_name="__main__")
