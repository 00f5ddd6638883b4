"""An agent with a scripted model that notes every call outside the store.

`python durable_agent.py STORE LOG` executes the run "r". The agent calls several tools at once, among
them sub-agents in a step and in workflow code, then an effect and a tool that needs approval.
"""

import asyncio
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from outlast import KEY, Happened, Outlast, WrongStatus, step, workflow
from outlast.integrations.pydantic_ai import OutlastDurability, ToolEffect, effect_key


class Outside:
    """The world that the agent changes and that the tests read. `log` makes it outlive a process."""

    def __init__(self) -> None:
        self.log: Path | None = None
        self.events: list[str] = []
        self._lines: list[str] = []

    @property
    def lines(self) -> list[str]:
        return self._lines if self.log is None else self.log.read_text().splitlines()

    def note(self, call: str, key: str = "") -> None:
        """Note that a call begins, with the key of an effect."""
        line = f"{call}\t{key}" if key else call
        if self.log is None:
            self._lines.append(line)
            return
        with self.log.open("a") as file:
            file.write(f"{line}\n")
        print("call", line)  # A test may stop the process here.

    def count(self, call: str) -> int:
        return Counter(line.partition("\t")[0] for line in self.lines)[call]

    def keys(self, call: str) -> list[str]:
        found = [line.partition("\t") for line in self.lines]
        return [key for name, _, key in found if name == call]

    def clear(self) -> None:
        self._lines.clear()
        self.events.clear()


outside = Outside()

USAGE = RequestUsage(input_tokens=10, output_tokens=5)


def turn(messages: list[ModelMessage]) -> int:
    return sum(isinstance(message, ModelResponse) for message in messages)


def check_history(messages: list[ModelMessage]) -> None:
    """Every tool call of a history has its result, except those of the last response."""
    for at, message in enumerate(messages):
        if isinstance(message, ModelResponse) and at + 1 < len(messages):
            called = {part.tool_call_id for part in message.tool_calls}
            parts = messages[at + 1].parts
            answered = {
                part.tool_call_id
                for part in parts
                if isinstance(part, (ToolReturnPart, RetryPromptPart))
            }
            assert called == answered, (called, answered)


def answer(*parts) -> ModelResponse:
    return ModelResponse(parts=list(parts), usage=USAGE)


SCRIPT = [
    [
        ToolCallPart("weather", {"city": "Rome"}, "w1"),
        ToolCallPart("weather", {"city": "Oslo"}, "w2"),
        ToolCallPart("guess", {}, "g1"),
        ToolCallPart("ask_expert", {"question": "why?"}, "x1"),
        ToolCallPart("ask_inline", {"question": "how?"}, "x2"),
        ToolCallPart("ask_inline", {"question": "when?"}, "x3"),
    ],
    [
        ToolCallPart("guess", {"number": 7}, "g2"),
        ToolCallPart("pay", {"invoice": "i1", "cents": 250}, "p1"),
        ToolCallPart("delete", {"file": "old"}, "d1"),
    ],
]
PAY = "pay i1 250"
PLAN = [
    [["support 0"]],
    [
        ["weather Rome"],
        ["weather Oslo"],
        ["guess 0"],
        ["expert why? 0", "look_up why?", "expert why? 1"],
        ["expert how? 0", "look_up how?", "expert how? 1"],
        ["expert when? 0", "look_up when?", "expert when? 1"],
    ],
    [["support 1"]],
    # Pydantic AI asks for approval when the other calls have ended.
    [["guess 7"], [PAY]],
    [["delete old"]],
    [["support 2"]],
]
"""Every model call and tool call of the agent: turns of chains of calls."""
RESULT = "done 6 RunUsage(input_tokens=90, output_tokens=45, requests=9, tool_calls=11)"


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    check_history(messages)
    at = turn(messages)
    outside.note(f"support {at}")
    return answer(*SCRIPT[at]) if at < len(SCRIPT) else answer(TextPart("done"))


async def stream(messages: list[ModelMessage], info: AgentInfo):
    check_history(messages)
    at = turn(messages)
    outside.note(f"support {at}")
    if at < len(SCRIPT):
        yield {
            number: DeltaToolCall(
                part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id
            )
            for number, part in enumerate(SCRIPT[at])
        }
    else:
        yield "do"
        yield "ne"


def expert_script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    check_history(messages)
    at = turn(messages)
    question = messages[0].parts[-1].content
    outside.note(f"expert {question} {at}")
    if at == 0:
        return answer(ToolCallPart("look_up", {"word": question}, f"l-{question}"))
    return answer(TextPart(f"because {question}"))


expert = Agent(FunctionModel(expert_script), name="expert", capabilities=[OutlastDurability()])


@expert.tool_plain
def look_up(word: str) -> str:
    outside.note(f"look_up {word}")
    return f"{word} is a word"


async def on_events(ctx, events) -> None:
    async for event in events:
        outside.events.append(type(event).__name__)


async def was_paid(invoice: str, key: str = KEY) -> Happened[str] | None:
    return Happened(f"receipt {invoice}") if key in outside.keys(PAY) else None


async def refund(receipt: str, effect_key: str, cents: int) -> None:
    assert receipt == "receipt i1"
    outside.note(f"refund {cents}", effect_key)


def make(**options) -> Agent:
    """Make the agent. Its tools are the same whatever the options."""
    agent = Agent(
        FunctionModel(script, stream_function=stream),
        name="support",
        capabilities=[OutlastDurability(**options)],
    )

    @agent.instructions
    def be_nice() -> str:
        return "Be nice."

    @agent.output_validator
    def is_text(output: str) -> str:
        return output.strip()

    @agent.tool_plain
    def weather(city: str) -> str:
        outside.note(f"weather {city}")
        return f"sun in {city}"

    @agent.tool_plain
    async def guess(number: int = 0) -> str:
        outside.note(f"guess {number}")
        if number != 7:
            raise ModelRetry("not that one")
        return "right"

    @agent.tool
    async def ask_expert(ctx: RunContext, question: str) -> str:
        return (await expert.run(question, usage=ctx.usage)).output

    @agent.tool(metadata={"outlast": False})
    async def ask_inline(ctx: RunContext, question: str) -> str:
        return (await expert.run(question, usage=ctx.usage)).output

    @agent.tool_plain(
        metadata={"outlast": ToolEffect(timeout=5, verify=was_paid, compensate=refund)}
    )
    async def pay(invoice: str, cents: int) -> str:
        outside.note(f"pay {invoice} {cents}", effect_key())
        return f"receipt {invoice}"

    @agent.tool_plain(requires_approval=True)
    def delete(file: str) -> str:
        outside.note(f"delete {file}")
        return f"deleted {file}"

    return agent


support = make()
streaming = make(event_stream_handler=on_events)


@step
async def save(messages: list[ModelMessage]) -> int:
    """Take the history as an argument, which must be the same in every life."""
    check_history(messages)
    return len(messages)


@workflow
async def ask(question: str) -> str:
    result = await support.run(question)
    return f"{result.output} {await save(result.all_messages())} {result.usage}"


@workflow
async def ask_streaming(question: str) -> str:
    result = await streaming.run(question)
    return f"{result.output} {await save(result.all_messages())} {result.usage}"


@workflow
async def ask_and_fail(question: str) -> str:
    await support.run(question)
    raise LookupError("after the agent")


async def approve(app) -> None:
    await app.send("crash", "approval:d1", True, message_id="1")


async def main(store: str, log: Path) -> None:
    outside.log = log
    async with Outlast(store) as app:
        run = await app.start(ask("hi"), id="r")
        # An earlier process may have finished it.
        with suppress(WrongStatus):
            await app.send("r", "approval:d1", True, message_id="yes")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
