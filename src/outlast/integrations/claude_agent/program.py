"""Execute the SDK's program, and hold it where a step of the turn ends.

The program asks before it goes on: a hook before each tool, the call of an in-process tool, and a
hook after the tools of a response. Each of these is a pause. While the program pauses, the step
ends and its result is recorded. The next step lets the program go on.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, cast

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLIConnectionError,
    HookMatcher,
    Message,
    ResultMessage,
)

from outlast.integrations.claude_agent.tools import CALL, DurableServer, DurableTool, durable_tools
from outlast.integrations.claude_agent.transcript import Entries, Result, TurnTranscript

log = logging.getLogger("outlast.claude_agent")
OnMessage = Callable[[Message], Awaitable[None] | None]

READ_ONLY = frozenset({"Read", "Glob", "Grep", "LS", "NotebookRead", "TodoWrite", "ToolSearch"})
"""The program's own tools that change nothing outside. They execute without a pause."""
PAUSE_SECONDS = 30 * 86_400
"""How long the program may pause. The hooks of the SDK have a time-out of a minute by default."""
RECORD_SECONDS = 60.0
"""How long the program may take to hand over the entries that belong to a pause."""
GATHER_SECONDS = 2.0
"""How long to wait for read-only calls of a response that belong together. Later ones are the next
step's."""
INTERRUPT_SECONDS = 2.0
CONTINUE = "Continue from where you left off."
"""What the model gets after a crash."""


class PauseKind(StrEnum):
    """What the program waits for."""

    TOOL = "tool"
    """The result of an in-process tool."""
    BUILTIN = "builtin"
    """Whether it may execute a tool of its own."""
    BATCH = "batch"
    """Whether it may give the results of its own tools to the model."""


@dataclass(frozen=True)
class Pause:
    """A question of the program, with what the recorded transcript must contain at that point."""

    id: str
    kind: PauseKind
    tool: str = ""
    input: Any = None
    calls: tuple[str, ...] = ()
    """The calls whose results are in the transcript. Otherwise the call itself is."""


class ClaudeProgram:
    """The SDK's program in the middle of a turn."""

    def __init__(
        self,
        prompt: Any,
        options: ClaudeAgentOptions,
        transcript: TurnTranscript,
        resumes: bool,
        session_id: str,
        needs_approval: Iterable[str] = (),
    ) -> None:
        """Prepare the program. It continues the turn if it `resumes`, and else gets the prompt."""
        self._transcript = transcript
        self._durable = durable_tools(options.mcp_servers)
        self._at_once = {name for name, tool in self._durable.items() if tool.is_read_only}
        self._unasked = READ_ONLY.difference(needs_approval)
        self._prompt = CONTINUE if resumes else prompt
        self._client = ClaudeSDKClient(self._extended(options, session_id))
        self._announced: dict[str, deque[str]] = {}
        self._waiting: dict[str, tuple[Pause, asyncio.Future[Any]]] = {}
        self._reported: list[Pause] = []
        self._messages: deque[Message] = deque()
        self._result: ResultMessage | None = None
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    def _extended(self, options: ClaudeAgentOptions, session_id: str) -> ClaudeAgentOptions:
        hooks: dict[Any, list[HookMatcher]] = dict(options.hooks or {})
        asked: list[tuple[str, Any]] = [("PreToolUse", self._before_tool)]
        if not self._has_only_durable_tools(options):
            asked.append(("PostToolBatch", self._after))
        for event, hook in asked:
            ours = HookMatcher(hooks=[hook], timeout=PAUSE_SECONDS)
            hooks[event] = [*hooks.get(event, ()), ours]
        return replace(
            options,
            hooks=hooks,
            session_store=cast("Any", self._transcript),
            session_store_flush="eager",
            resume=None if self._transcript.is_new else session_id,
        )

    @staticmethod
    def _has_only_durable_tools(options: ClaudeAgentOptions) -> bool:
        """Return whether the program has no results of its own tools to record."""
        servers = options.mcp_servers
        return (
            options.tools == []
            and options.strict_mcp_config
            and isinstance(servers, dict)
            and all(isinstance(one, DurableServer) for one in servers.values())
        )

    async def start(self) -> None:
        """Start the program and give it the prompt."""
        self._transcript.on_append = self._changed.set
        # The tools find this program through the tasks that the client creates.
        CALL.set(self._call_tool)
        await self._client.connect()
        await self._client.query(self._input())
        self._reader = asyncio.ensure_future(self._read())

    def _input(self) -> Any:
        if isinstance(self._prompt, str):
            return self._prompt

        async def one() -> AsyncIterator[dict[str, Any]]:
            yield {
                "type": "user",
                "message": {"role": "user", "content": self._prompt},
                "parent_tool_use_id": None,
            }

        return one()

    async def close(self) -> None:
        """End the program. It executes nothing more."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
            if self._result is None and self._error is None:
                # Without this, the program would go on until it wants to write.
                with suppress(Exception):
                    async with asyncio.timeout(INTERRUPT_SECONDS):
                        await self._client.interrupt()
        await self._client.disconnect()

    async def advance(
        self, answers: Mapping[str, Any], on_message: OnMessage | None
    ) -> tuple[list[Pause], Entries, dict[str, Any] | None]:
        """Let the program go on, and return where it pauses next.

        `answers` has the results of the tools of the last pause, and for a tool of the program
        whether it may execute. The pauses come with the entries that the program added. At the end
        of the turn there is no pause, but the SDK's result.
        """
        for pause in self._reported:
            waiting = self._waiting.pop(pause.id, None)
            if waiting is not None and not waiting[1].done():
                waiting[1].set_result(answers.get(pause.id))
        gather_until: float | None = None
        while True:
            self._changed.clear()
            await self._show(on_message)
            if self._result is not None:
                self._reported = []
                return [], self._transcript.take(), asdict(self._result)
            if self._error is not None:
                raise self._error
            if self._is_recorded():
                now = asyncio.get_running_loop().time()
                if gather_until is None:
                    gather_until = now + GATHER_SECONDS
                if now >= gather_until or not self._expects_more():
                    break
                await self._change(gather_until - now)
            elif not await self._change(RECORD_SECONDS if self._waiting else None):
                raise CLIConnectionError(
                    "the program did not report the transcript of the tool calls "
                    f"{', '.join(self._waiting)} within {RECORD_SECONDS:.0f} s. The turn needs "
                    "Claude Code 2.1.200 or later."
                )
        self._reported = [pause for pause, _ in self._waiting.values()]
        return self._reported, self._transcript.take(), None

    def _is_recorded(self) -> bool:
        """Return whether the program pauses, and the transcript tells why."""
        pauses = [pause for pause, _ in self._waiting.values()]
        asked = [one.id for one in pauses if one.kind is not PauseKind.BATCH]
        ended = [call for one in pauses for call in one.calls]
        return (
            bool(pauses)
            and self._transcript.has_calls(asked)
            and self._transcript.has_results(ended)
        )

    def _expects_more(self) -> bool:
        """Return whether more belongs to this pause: the rest of a response, or calls at once."""
        pauses = [pause for pause, _ in self._waiting.values()]
        return any(self._transcript.is_unfinished(one.id) for one in pauses) or any(
            not self._waiting.keys() >= set(self._transcript.beside(one.id, self._at_once))
            for one in pauses
            if one.kind is PauseKind.TOOL and one.tool in self._at_once
        )

    async def _change(self, seconds: float | None) -> bool:
        """Wait until something happens, and return whether it did in this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _show(self, on_message: OnMessage | None) -> None:
        while self._messages:
            message = self._messages.popleft()
            if on_message is not None:
                answer = on_message(message)
                if inspect.isawaitable(answer):
                    await answer

    async def _read(self) -> None:
        """Collect the program's messages up to its result."""
        try:
            async for message in self._client.receive_response():
                self._messages.append(message)
                if isinstance(message, ResultMessage):
                    self._result = message
                self._changed.set()
            if self._result is None:
                self._error = CLIConnectionError("the program ended in the middle of the turn.")
        except Exception as error:
            self._error = error
        self._changed.set()

    async def _before_tool(self, given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        """Pause before a tool of the program. In-process tools pause when they are called."""
        tool, id = str(given["tool_name"]), str(call_id or given.get("tool_use_id"))
        if tool in self._durable:
            self._announced.setdefault(_call_key(tool, given["tool_input"]), deque()).append(id)
            return {}
        if tool in self._unasked:
            return {}
        pause = Pause(id, PauseKind.BUILTIN, tool, given["tool_input"])
        return _decision(await self._pause(pause))

    async def _after(self, given: Any, hook_id: str | None, context: Any) -> dict[str, Any]:
        """Pause after the tools of a response, if some were the program's own."""
        self._announced.clear()
        calls = [
            one for one in given.get("tool_calls", ()) if one["tool_name"] not in self._durable
        ]
        if calls:
            ids = tuple(str(one["tool_use_id"]) for one in calls)
            await self._pause(Pause(str(hook_id or ids[0]), PauseKind.BATCH, calls=ids))
        return {}

    async def _call_tool(self, tool: DurableTool, arguments: dict[str, Any]) -> Result:
        name = next(name for name, one in self._durable.items() if one is tool)
        ids = self._announced.get(_call_key(name, arguments)) or next(
            (ids for key, ids in self._announced.items() if ids and key.startswith(f"{name} ")),
            None,
        )
        if not ids:
            raise CLIConnectionError(
                f"the program called tool {name} without asking the PreToolUse hook before. The "
                "turn needs Claude Code 2.1.200 or later."
            )
        result: Result = await self._pause(Pause(ids.popleft(), PauseKind.TOOL, name, arguments))
        return result

    async def _pause(self, pause: Pause) -> Any:
        """Wait for the next step, and return its answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[pause.id] = pause, answer
        self._changed.set()
        try:
            return await answer
        finally:
            self._waiting.pop(pause.id, None)


def _call_key(tool: str, arguments: Any) -> str:
    return f"{tool} {json.dumps(arguments, sort_keys=True, default=str)}"


def _decision(approved: bool | None) -> dict[str, Any]:
    """Return a hook's answer. None leaves the decision to the rules of the options."""
    if approved is None:
        return {}
    decided: dict[str, Any] = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow" if approved else "deny",
    }
    if not approved:
        decided["permissionDecisionReason"] = "A person rejected this call."
    return {"hookSpecificOutput": decided}
