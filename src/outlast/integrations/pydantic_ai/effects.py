"""Turn tools into effects.

An effect must be known by its name before a run compensates it, and its definition must be the same
in every life. A tool's call also needs the agent's live context. So the definition has only the
tool's parameters, and each call passes the work to do as an argument that is not recorded.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import uuid4

from pydantic import TypeAdapter
from pydantic_ai import Tool
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_core import to_jsonable_python

from outlast.api.context import Place, current, place
from outlast.api.effect import Effect, Happened, effect, know_source
from outlast.codec.signature import Unrecorded
from outlast.errors import NotInRun
from outlast.integrations.pydantic_ai.options import (
    EFFECT_TIMEOUT,
    StepOptions,
    ToolEffect,
    ToolOptions,
    tool_options,
)

Work = Callable[[], Awaitable[Any]]

WORK = "outlast_work"
"""The parameter of an effect that takes what to do. It is not recorded."""
ARGUMENTS = "arguments"
"""The parameter that takes all arguments of a tool without a Python function."""
RETURNED = ("tool_return", "tool_content_result")
"""The kinds of encoded results of a tool that returned. All others state that it did not act."""


class ToolDidNotAct(Exception):
    """The tool raised an exception for the model. The argument is its encoded result."""


def effect_key() -> str:
    """Return the idempotency key of the call, in a tool that is an effect.

    It is the same for all attempts and workers. Outside a workflow each call gets a new key.
    """
    return current().key if place() is Place.EFFECT else uuid4().hex


class ToolEffects:
    """The tools of one agent that are effects. Each is defined when it is first needed."""

    def __init__(
        self, agent: AbstractAgent[Any, Any], name: str, tools: dict[str, ToolOptions]
    ) -> None:
        self._agent = agent
        self._name = name
        self._tools = tools
        know_source(self)

    def define_effects(self) -> None:
        """Define the effects of all function tools that the agent has now."""
        for toolset in self._toolsets():
            if isinstance(toolset, FunctionToolset):
                for name, tool in toolset.tools.items():
                    options = tool_options(name, tool.metadata, self._tools, StepOptions())
                    if isinstance(options, ToolEffect):
                        self.get(toolset.id, name, options)

    def get(self, toolset_id: str | None, tool_name: str, options: ToolEffect) -> Effect[..., Any]:
        """Return the effect of a tool.

        Agents that a program creates again and again share the definitions of their effects.
        """
        tool = self._function_tool(toolset_id, tool_name)
        name = f"{self._name}.{tool_name}"
        function = None if tool is None else tool.function
        where = _code_of(function)
        known = _defined.get((name, where))
        if known is None or known[0] is not function or known[1] != options:
            known = function, options, _define(name, tool, options)
            _defined[name, where] = known
        return known[2]

    def _function_tool(self, toolset_id: str | None, name: str) -> Tool[Any] | None:
        """Return a tool that is a Python function. Tools of MCP servers are none."""
        for toolset in self._toolsets():
            if isinstance(toolset, FunctionToolset) and toolset.id == toolset_id:
                return toolset.tools.get(name)
        return None

    def _toolsets(self) -> list[AbstractToolset[Any]]:
        found: list[AbstractToolset[Any]] = []
        for toolset in self._agent.toolsets:
            toolset.apply(found.append)
        return found


_defined: dict[tuple[str, str], tuple[Any, ToolEffect, Effect[..., Any]]] = {}
"""The tool's function, its options and its effect, by the effect's name and the function's."""


async def call_effect(
    made: Effect[..., Any], key: str | None, arguments: dict[str, Any], work: Work
) -> Any:
    """Call an effect and return the tool's encoded result. Raise NotInRun in a step's body."""
    if place() is not Place.WORKFLOW:
        raise NotInRun(
            f"tool {made.name} is an effect, and its agent runs inside another tool. A step's body "
            'cannot call effects. Give the tool that runs the agent metadata={"outlast": False}.'
        )
    taken = made.signature.names
    given = {name: value for name, value in arguments.items() if name in taken}
    if ARGUMENTS in taken and len(given) < len(arguments):
        given = {ARGUMENTS: arguments}
    try:
        return await (made if key is None else made.keyed(key))(**{WORK: work, **given})
    except ToolDidNotAct as error:
        return json.loads(error.args[0])


def _define(name: str, tool: Tool[Any] | None, options: ToolEffect) -> Effect[..., Any]:
    async def act(**given: Any) -> Any:
        payload = await given[WORK]()
        if payload["kind"] not in RETURNED:
            raise ToolDidNotAct(json.dumps(payload))
        return payload

    function = None if tool is None else tool.function
    own = None if tool is None else _parameters(tool)
    if own is None:
        own = {ARGUMENTS: (inspect.Parameter(ARGUMENTS, _KEYWORD), dict[str, Any])}
    work = inspect.Parameter(WORK, _KEYWORD)
    _describe(
        act,
        function,
        [work, *(parameter for parameter, _ in own.values())],
        {WORK: Annotated[Any, Unrecorded], **{name: hint for name, (_, hint) in own.items()}},
    )
    failed_on = options.failed_on if isinstance(options.failed_on, tuple) else (options.failed_on,)
    timeout = options.timeout or (tool and tool.timeout) or EFFECT_TIMEOUT
    more: dict[str, Any] = {"undo": None} if options.compensate is False else {}
    made: Effect[..., Any] = effect(
        name=name,
        timeout=timeout,
        retries=options.retries,
        backoff=options.backoff,
        backoff_max=options.backoff_max,
        failed_on=(ToolDidNotAct, *failed_on),
        idempotent=options.idempotent,
        **more,
    )(act)
    if options.verify is not None:
        made.verify(_verifying(options.verify))
    if options.compensate:
        made.compensate(name=f"{name}.compensate")(_compensating(options.compensate))
    return made


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _parameters(tool: Tool[Any]) -> dict[str, tuple[inspect.Parameter, Any]] | None:
    """Return a tool's parameters with their annotations, without the agent's context.

    Return None if the tool takes any number of arguments.
    """
    parameters = list(inspect.signature(tool.function).parameters.values())
    if tool.function_schema.takes_ctx:
        del parameters[0]
    if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
        return None
    hints = _hints(tool.function)
    return {one.name: (one.replace(kind=_KEYWORD), hints.get(one.name, Any)) for one in parameters}


def _verifying(verify: Callable[..., Any]) -> Callable[..., Any]:
    """Return a verify whose result is encoded like the tool's."""

    def encoded(answer: Any) -> Any:
        if not isinstance(answer, Happened):
            return answer
        return Happened({"result": to_jsonable_python(answer.result), "kind": RETURNED[0]})

    wrapped = _around(verify, lambda fn, args, kwargs: fn(*args, **kwargs), encoded)
    hints = {name: hint for name, hint in _hints(verify).items() if name != "return"}
    _describe(wrapped, verify, list(inspect.signature(verify).parameters.values()), hints)
    return wrapped


def _compensating(compensate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compensation that gets the tool's own result."""
    parameters = list(inspect.signature(compensate).parameters.values())
    hints = _hints(compensate)
    first = hints.pop(parameters[0].name, Any) if parameters else Any

    def called(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        payload, *others = args
        result = payload["result"] if isinstance(payload, dict) else payload
        adapter: TypeAdapter[Any] = TypeAdapter(first)
        decoded = result if payload is None else adapter.validate_python(result)
        return fn(decoded, *others, **kwargs)

    wrapped = _around(compensate, called, lambda answer: answer)
    _describe(wrapped, compensate, parameters, hints)
    return wrapped


def _around(
    fn: Callable[..., Any], call: Callable[..., Any], after: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return a function that calls `fn` through `call` and returns what `after` makes of it.

    It is async or sync as `fn` is.
    """
    if inspect.iscoroutinefunction(fn):

        async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
            return after(await call(fn, args, kwargs))

        return wrapped_async

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return after(call(fn, args, kwargs))

    return wrapped


def _describe(
    fn: Callable[..., Any],
    original: Callable[..., Any] | None,
    parameters: list[inspect.Parameter],
    hints: dict[str, Any],
) -> None:
    """Give a function the name of the original, these parameters and these annotations."""
    if original is not None:
        fn.__module__, fn.__qualname__ = _names_of(original)
        fn.__name__ = fn.__qualname__.rpartition(".")[2]
    fn.__annotations__ = hints
    fn.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]


def _code_of(function: Callable[..., Any] | None) -> str:
    return "" if function is None else ":".join(_names_of(function))


def _names_of(function: Any) -> tuple[str, str]:
    kind = type(function)
    return (
        getattr(function, "__module__", kind.__module__),
        getattr(function, "__qualname__", kind.__qualname__),
    )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function, or none if they cannot be resolved."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}
