"""Answer a customer with an agent of the OpenAI Agents SDK, and pay money back once.

python examples/openai_agent.py

pip install 'outlast[openai-agents]'. Kill it while the agent thinks or a tool executes (kill -9 or
Ctrl-C), then start it again. Only the calls that were in flight are made again, and refunds.txt has
one line. The model follows a script, so that you need no key: leave `model=` out to use a real one.
"""

import asyncio
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from agents.testing import assistant_message, function_call

from outlast import KEY, effect, run, workflow
from outlast.integrations.openai_agents import durable, effect_tool

REFUNDS = Path("refunds.txt")  # stands for the bank, which ignores a key that it knows

SCRIPT = {  # what the model says, by the number of results that it has seen
    0: [function_call("look_up", {"order": order}, call_id=order) for order in ("o-7", "o-8")],
    2: [function_call("refund", {"order": "o-7", "euros": 20}, call_id="refund-1")],
    3: [assistant_message("You get 20 euros back for o-7.")],
}


class ScriptedModel(Model):
    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        seen = sum(1 for item in input if item.get("type") == "function_call_output")
        print("thinks, with", seen, "results", flush=True)
        await asyncio.sleep(0.3)
        return ModelResponse(output=SCRIPT[seen], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@function_tool
async def look_up(order: str) -> str:
    """Look up an order."""
    print("looks up", order, flush=True)
    await asyncio.sleep(0.3)
    return f"{order} was {'late' if order == 'o-7' else 'on time'}"


@effect(timeout=2, idempotent=True, undo=None)
async def refund(order: str, euros: int, key: str = KEY) -> str:
    """Pay a customer back."""
    known = REFUNDS.read_text() if REFUNDS.exists() else ""
    if key not in known:
        REFUNDS.write_text(f"{known}{key} {euros} euros for {order}\n")
    print("refunds", order, flush=True)
    await asyncio.sleep(0.5)  # paid, but not recorded yet: a good moment to crash
    return f"refunded {euros} euros"


set_tracing_disabled(disabled=True)
tools = [look_up, effect_tool(refund)]
agent = durable(Agent(name="support", model=ScriptedModel(), tools=tools))


@workflow
async def answer(question: str) -> str:
    result = await Runner.run(agent, question)
    return result.final_output


if __name__ == "__main__":
    print(run(answer("My orders o-7 and o-8?"), id="support-1"))
