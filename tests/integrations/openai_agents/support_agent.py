"""A support agent with a scripted model that notes every call in a file outside the store.

`python support_agent.py STORE LOG` executes the run "r". The agent calls two tools at once, an effect
together with a sub-agent, and a tool that needs approval, then hands off.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents import Agent, Model, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from outlast import KEY, Outlast, WrongStatus, effect, receive, workflow
from outlast.integrations.openai_agents import durable, effect_tool, run_with_approvals

set_tracing_disabled(True)
NOTES: list[Callable[[str], None]] = []
"""Where the calls are noted."""


def note(line: str) -> None:
    for write in NOTES:
        write(line)


def call(name: str, call_id: str, **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id)


class Scripted(Model):
    """Answer by the number of tool results in the input, so that it needs no memory."""

    def __init__(self, name: str, script: dict[int, list[Any]]) -> None:
        self._name, self._script = name, script

    def _model(self, input: Any) -> ScriptedModel:
        items = [] if isinstance(input, str) else input
        results = sum(1 for item in items if item.get("type") == "function_call_output")
        check_pairs(items)
        note(f"{self._name} {results}")
        return ScriptedModel([self._script[results]])

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> Any:
        model = self._model(input)
        return await model.get_response(system_instructions, input, *args, **kwargs)

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        model = self._model(input)
        async for event in model.stream_response(system_instructions, input, *args, **kwargs):
            yield event


def check_pairs(items: list[Any]) -> None:
    """Fail if a history has a tool call without its result."""
    calls = {item["call_id"] for item in items if item.get("type") == "function_call"}
    results = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
    assert calls == results, f"calls {calls}, results {results}"


@function_tool
async def weather(city: str) -> str:
    """Look up the weather."""
    note(f"weather {city}")
    return f"sunny in {city}"


@function_tool
def population(city: str) -> int:
    """Look up the population."""
    note(f"population {city}")
    return 7


@effect(timeout=5, idempotent=True, undo=None)
async def refund(amount: int, key: str = KEY) -> str:
    """Pay money back."""
    note(f"refund {amount}\t{key}")
    return f"refunded {amount}"


@function_tool(needs_approval=True)
async def delete(account: str) -> str:
    """Delete an account."""
    note(f"delete {account}")
    return f"deleted {account}"


translator = Agent(
    name="translator", model=Scripted("translator", {0: [assistant_message("ciao")]})
)
billing = Agent(name="billing", model=Scripted("billing", {6: [assistant_message("all done")]}))
support = durable(
    Agent(
        name="support",
        tools=[
            weather,
            population,
            effect_tool(refund),
            translator.as_tool("translate", "Translate a text."),
            delete,
        ],
        handoffs=[billing],
        model=Scripted(
            "support",
            {
                0: [call("weather", "c1", city="Rome"), call("population", "c2", city="Rome")],
                2: [call("refund", "c3", amount=5), call("translate", "c4", input="hello")],
                4: [call("delete", "c5", account="a-7")],
                5: [call("transfer_to_billing", "c6")],
            },
        ),
    )
)
PLAN = [
    [["support 0"]],
    [["weather Rome"], ["population Rome"]],
    [["support 2"]],
    [["refund 5"], ["translator 0"]],
    [["support 4"]],
    [["delete a-7"]],
    [["support 5"]],
    [["billing 6"]],
]
"""Every model call and tool call of the agent: turns of chains of calls."""


@workflow
async def handle(question: str) -> str:
    result = await run_with_approvals(support, question)
    return f"{result.final_output}, {result.context_wrapper.usage.requests} requests"


@workflow
async def handle_streamed(question: str) -> list[str]:
    """Return the types of all events of a stream, which continues after the approval."""
    given: Any = question
    types: list[str] = []
    while True:
        streamed = Runner.run_streamed(support, given)
        types += [event.type async for event in streamed.stream_events()]
        if not streamed.interruptions:
            return types
        given = streamed.to_state()
        for item in streamed.interruptions:
            assert await receive(f"approval:{item.raw_item.call_id}", bool)
            given.approve(item)


RESULT = "all done, 6 requests"


async def main(store: str, log: Path) -> None:
    def write(line: str) -> None:
        with log.open("a") as file:
            file.write(f"{line}\n")
        print("call", line)  # A test may stop the process here.

    NOTES.append(write)
    async with Outlast(store) as app:
        run = await app.start(handle("My account, please."), id="r")
        # An earlier process may have finished it.
        with suppress(WrongStatus):
            await app.send("r", "approval:c5", True, message_id="yes")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
