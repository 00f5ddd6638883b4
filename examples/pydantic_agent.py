"""Book a weekend with a Pydantic AI agent that asks another agent for advice.

python examples/pydantic_agent.py

pip install 'outlast[pydantic-ai]'. Kill it while an agent thinks or a tool executes (kill -9 or
Ctrl-C), then start it again. Only the calls that were in flight are made again, and hotels.txt has
one line. The models are functions, so that you need no key: put "openai:gpt-5.2" in their place.
"""

import asyncio
from pathlib import Path

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlast import KEY, Happened, run, workflow
from outlast.integrations.pydantic_ai import OutlastDurability, ToolEffect, effect_key

HOTELS = Path("hotels.txt")  # stands for the hotel's website, which can be asked

PLAN = (
    [ToolCallPart("ask_guide", {"city": city}, f"ask-{city}") for city in ("Porto", "Lisbon")],
    [ToolCallPart("book", {"hotel": "Hotel Tejo"}, "book-1")],
    [TextPart("Hotel Tejo in Lisbon is booked.")],
)


async def think(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Decide by the number of earlier answers. It stands for a model."""
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    print("thinks, turn", turn + 1, flush=True)
    await asyncio.sleep(0.3)
    return ModelResponse(parts=PLAN[turn])


async def advise(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    city = messages[0].parts[-1].content
    print("advises on", city, flush=True)
    await asyncio.sleep(0.3)
    return ModelResponse(parts=[TextPart(f"{city} is worth a weekend.")])


guide = Agent(FunctionModel(advise), name="guide", capabilities=[OutlastDurability()])
agent = Agent(FunctionModel(think), name="travel", capabilities=[OutlastDurability()])


@agent.tool
async def ask_guide(ctx: RunContext, city: str) -> str:
    return (await guide.run(city, usage=ctx.usage)).output


async def is_booked(hotel: str, key: str = KEY) -> Happened[str] | None:
    booked = HOTELS.exists() and key in HOTELS.read_text()
    return Happened(f"booked {hotel}") if booked else None


@agent.tool_plain(metadata={"outlast": ToolEffect(timeout=2, verify=is_booked)})
async def book(hotel: str) -> str:
    with HOTELS.open("a") as hotels:
        hotels.write(f"{effect_key()} {hotel}\n")
    print("books", hotel, flush=True)
    await asyncio.sleep(0.5)  # booked, but not recorded yet: a good moment to crash
    return f"booked {hotel}"


@workflow
async def weekend(wish: str) -> str:
    return (await agent.run(wish)).output


if __name__ == "__main__":
    print(run(weekend("a weekend in Portugal"), id="weekend-1"))
