"""Let people approve tool calls through messages to the run."""

from __future__ import annotations

from typing import Any

from agents import Agent, Runner, RunResult, ToolApprovalItem

from outlast.api.context import receive


def approval_name(call_id: str) -> str:
    """Return the name of the message that approves or rejects a tool call."""
    return f"approval:{call_id}"


async def run_with_approvals(agent: Agent[Any], input: Any, **options: Any) -> RunResult:
    """Run an agent in a workflow, and wait for a person where a tool needs approval.

        result = await run_with_approvals(agent, "Refund order 7.")

    A tool with `needs_approval` waits for a message to the run: `await app.send(run_id,
    f"approval:{call_id}", True)`, or `False` to reject the call. It may wait for days: the run
    occupies no worker in the meantime. `options` are those of `Runner.run`.
    """
    result = await Runner.run(agent, input, **options)
    while result.interruptions:
        state = result.to_state()
        for item in result.interruptions:
            if await receive(approval_name(_call_id(item)), bool):
                state.approve(item)
            else:
                state.reject(item)
        result = await Runner.run(agent, state, **options)
    return result


def _call_id(item: ToolApprovalItem) -> str:
    raw: Any = item.raw_item
    return str(raw["call_id"] if isinstance(raw, dict) else raw.call_id)
