"""Make Pydantic AI agents durable: each model request and tool call is recorded once.

    agent = Agent("openai:gpt-5.2", name="support", capabilities=[OutlastDurability()])

    @workflow
    async def answer(question: str) -> str:
        return (await agent.run(question)).output

A run that is killed continues after its last recorded model request or tool call. Outside a
workflow the agent behaves as if the capability were not there.
"""

from outlast.integrations.missing import missing_framework

try:
    from outlast.integrations.pydantic_ai.durability import OutlastDurability
    from outlast.integrations.pydantic_ai.effects import effect_key
    from outlast.integrations.pydantic_ai.options import StepOptions, ToolEffect
except ImportError as error:
    raise missing_framework("pydantic-ai", "pydantic-ai-slim 2.63 or later", error) from error

__all__ = ["OutlastDurability", "StepOptions", "ToolEffect", "effect_key"]
