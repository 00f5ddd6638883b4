"""Name a bench's queue and workflows.

No other worker claims from this queue or knows these workflows.
"""

from __future__ import annotations

import secrets

QUEUE = "outlast.bench"
STEPS = "outlast.bench.steps"
RECOVERY = "outlast.bench.recovery"
WORKFLOWS = frozenset({STEPS, RECOVERY})


def new_id() -> str:
    return f"{QUEUE}-{secrets.token_hex(8)}"
