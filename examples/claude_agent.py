"""Answer a customer with an agent of the Claude Agent SDK, and pay money back once.

python examples/claude_agent.py

pip install 'outlast[claude-agent]', and set ANTHROPIC_API_KEY. Kill it while the agent thinks or a
tool executes (kill -9 or Ctrl-C), then start it again. Only the calls that were in flight are made
again, and refunds.txt has one line.
"""

import asyncio
from pathlib import Path
from typing import Any

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, Message, ToolAnnotations, tool

from outlast import KEY, effect, run, workflow
from outlast.integrations.claude_agent import durable_server, effect_tool, run_turn

REFUNDS = Path("refunds.txt")  # stands for the bank, which ignores a key that it knows


@tool("look_up", "Look up an order", {"order": str}, ToolAnnotations(readOnlyHint=True))
async def look_up(args: dict[str, Any]) -> dict[str, Any]:
    print("looks up", args["order"], flush=True)
    await asyncio.sleep(0.3)
    text = f"{args['order']} was {'late' if args['order'] == 'o-7' else 'on time'}"
    return {"content": [{"type": "text", "text": text}]}


@effect(timeout=2, idempotent=True, undo=None)
async def refund(order: str, euros: int, key: str = KEY) -> str:
    """Pay a customer back."""
    known = REFUNDS.read_text() if REFUNDS.exists() else ""
    if key not in known:
        REFUNDS.write_text(f"{known}{key} {euros} euros for {order}\n")
    print("refunds", order, flush=True)
    await asyncio.sleep(0.5)  # paid, but not recorded yet: a good moment to crash
    return f"refunded {euros} euros"


options = ClaudeAgentOptions(
    system_prompt="Look up each order. Refund 20 euros for a late one.",
    mcp_servers={"shop": durable_server("shop", tools=[look_up, effect_tool(refund)])},
    tools=[],  # none of the program's own
    allowed_tools=["mcp__shop__look_up", "mcp__shop__refund"],
    setting_sources=[],
)


def show(message: Message) -> None:
    if isinstance(message, AssistantMessage):
        print("thinks", flush=True)


@workflow
async def answer(question: str) -> str:
    result = await run_turn(question, options, conversation="ada", on_message=show)
    return result.result or ""


if __name__ == "__main__":
    print(run(answer("My orders o-7 and o-8?"), id="support-2"))
