"""Make LangGraph graphs durable.

    from outlast.integrations.langgraph import durable_graph

    support = durable_graph(builder.compile(name="support"))

    run(support({"messages": [("user", "hello")]}), id="chat-1")

A graph becomes a workflow, and its nodes and tool calls become steps.

`OutlastSaver` is a checkpointer for graphs that LangGraph runs itself.
"""

from outlast.integrations.missing import missing_framework

try:
    import langgraph  # noqa: F401 - checked here, so that the error names the extra
except ImportError as error:
    raise missing_framework("langgraph", "langgraph 1.1 or later", error) from error

from outlast.integrations.langgraph.events import GraphEvent
from outlast.integrations.langgraph.graph import DurableGraph, durable_graph
from outlast.integrations.langgraph.saver import OutlastSaver
from outlast.integrations.langgraph.tools import effect_tool, workflow_tool

__all__ = [
    "DurableGraph",
    "GraphEvent",
    "OutlastSaver",
    "durable_graph",
    "effect_tool",
    "workflow_tool",
]
