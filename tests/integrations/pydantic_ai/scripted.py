"""Make agents with scripted models, and run them on a virtual clock."""

from durable_agent import answer, turn
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlast.integrations.pydantic_ai import OutlastDurability


def calling(name: str, arguments: dict | None = None) -> FunctionModel:
    """Return a model that calls one tool as c1, then says what the tool returned."""

    def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if turn(messages) == 0:
            return answer(ToolCallPart(name, arguments or {}, "c1"))
        returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        return answer(TextPart(str([part.content for part in returned])))

    return FunctionModel(script)


def saying(text: str, **options) -> FunctionModel:
    return FunctionModel(lambda messages, info: answer(TextPart(text)), **options)


def agent_with(model, *, durability: dict | None = None, **options) -> Agent:
    return Agent(model, name="a", capabilities=[OutlastDurability(**durability or {})], **options)


def run_with(world, call, messages: dict):
    """Start a run, send it messages and return its result."""

    async def main(app):
        run = await app.start(call, id="run")
        for name, value in messages.items():
            await app.send("run", name, value, message_id=name)
        return await run.result()

    return world.do(main)


def steps(world) -> list[str]:
    return sorted(entry.key for entry in world.journal() if entry.kind == "step")
