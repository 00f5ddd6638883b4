"""Turn calls of workflows into the JSON that the HTTP API takes."""

from __future__ import annotations

import inspect
import json
from typing import Any, Generic, TypeVar

from outlast.api.workflow import Call, Workflow
from outlast.codec.codecs import PLAIN
from outlast.execution.definitions import WorkflowDefinition

R = TypeVar("R")


class NamedCall(Generic[R]):
    """A workflow that is known only by name, with its arguments as plain JSON."""

    def __init__(self, workflow: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.workflow = workflow
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"<call {self.workflow}>"


def call(workflow: str, /, *args: Any, **kwargs: Any) -> NamedCall[Any]:
    """Return a call of the workflow with this name, for a program that does not have its code.

    The arguments are plain JSON, and the server checks them. The result is plain JSON too.
    """
    return NamedCall(workflow, args, kwargs)


def call_body(given: Call[Any] | NamedCall[Any]) -> dict[str, Any]:
    """Return a call as the HTTP API takes it."""
    if isinstance(given, NamedCall):
        return {"workflow": given.workflow, "args": list(given.args), "kwargs": given.kwargs}
    if not isinstance(given, Call):
        raise TypeError(
            f"submit a call, such as report('tides') or call('report', 'tides'), not {given!r}."
        )
    args, kwargs = _arguments(given.workflow, json.loads(given.args))
    return {"workflow": given.workflow.name, "args": args, "kwargs": kwargs}


def codec_of(given: Call[Any] | NamedCall[Any] | Workflow[..., Any] | str) -> Any:
    """Return the codec of a workflow's result. It is plain JSON where only the name is known."""
    workflow = given.workflow if isinstance(given, Call) else given
    return workflow.signature.returns() if isinstance(workflow, WorkflowDefinition) else PLAIN


def _arguments(
    workflow: WorkflowDefinition, bound: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return recorded arguments as they are passed: by position where the signature requires it."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    parameters = [
        one for one in inspect.signature(workflow.fn).parameters.values() if one.name in bound
    ]
    has_more = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    for one in parameters:
        value = bound[one.name]
        if one.kind is one.VAR_POSITIONAL:
            args += value
        elif one.kind is one.VAR_KEYWORD:
            kwargs |= value
        elif one.kind is one.POSITIONAL_ONLY or (
            has_more and one.kind is one.POSITIONAL_OR_KEYWORD
        ):
            args.append(value)
        else:
            kwargs[one.name] = value
    return args, kwargs
