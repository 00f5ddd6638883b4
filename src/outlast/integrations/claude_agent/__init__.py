"""Make agents of the Claude Agent SDK durable."""

from outlast.integrations.missing import missing_framework

try:
    import claude_agent_sdk  # noqa: F401 - checked here, so that the error names the extra
except ImportError as error:
    raise missing_framework("claude-agent", "claude-agent-sdk 0.2.150 or later", error) from error

from outlast.integrations.claude_agent.session_store import OutlastSessionStore
from outlast.integrations.claude_agent.tools import durable_server, effect_tool, workflow_tool
from outlast.integrations.claude_agent.turns import run_turn

__all__ = ["OutlastSessionStore", "durable_server", "effect_tool", "run_turn", "workflow_tool"]
