"""Make agents of the OpenAI Agents SDK durable.

    from outlast.integrations.openai_agents import durable

    agent = durable(Agent(name="Support", tools=[search]))

    @workflow
    async def answer(question: str) -> str:
        return (await Runner.run(agent, question)).final_output

In a workflow, each model call and each tool call is a step. Elsewhere the agent works as before.
"""

from outlast.integrations.missing import missing_framework

try:
    import agents  # noqa: F401 - checked here, so that the error names the extra
except ImportError as error:
    raise missing_framework("openai-agents", "openai-agents 0.23 or later", error) from error

from outlast.integrations.openai_agents.agents import durable
from outlast.integrations.openai_agents.approvals import run_with_approvals
from outlast.integrations.openai_agents.conversation import OutlastSession
from outlast.integrations.openai_agents.tools import effect_tool, workflow_tool

__all__ = ["OutlastSession", "durable", "effect_tool", "run_with_approvals", "workflow_tool"]
