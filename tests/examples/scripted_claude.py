"""The program and the model of examples/claude_agent.py: a stand-in, and a script."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from example_tools import ROOT

sys.path.insert(0, str(ROOT / "tests/integrations/claude_agent"))

from messages_api import MessagesApi, blocks, call, text
from support_claude import stand_in

SCRIPT = {
    0: [call(order, "mcp__shop__look_up", order=order) for order in ("o-7", "o-8")],
    2: [call("refund-1", "mcp__shop__refund", order="o-7", euros=20)],
    3: [text("You get 20 euros back for o-7.")],
}


@contextmanager
def scripted_claude(folder: Path) -> Iterator[dict[str, str]]:
    """Provide a model, and yield the variables with which the SDK finds it and its program."""
    folder.mkdir(exist_ok=True)
    stand_in(folder, "claude")
    with MessagesApi(lambda messages: SCRIPT[len(blocks(messages, "tool_result"))]) as api:
        yield {
            "PATH": f"{folder}:/usr/bin:/bin",
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
        }
        assert not api.errors, api.errors
