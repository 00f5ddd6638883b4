"""Execute a turn of the Claude Agent SDK in a workflow.

The SDK's program makes the model calls. A step lets it go on until it pauses, and records the
entries that it added to the transcript. The workflow then executes the in-process tools that the
program asked for, and the next step hands their results over. At the end of the turn, all its
entries are appended to the session in one write. The README of `integrations` tells what each write
means at a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    fold_session_summary,
    project_key_for_directory,
)

from outlast.api.context import Place, place, receive, uuid
from outlast.api.resource import resource
from outlast.api.scope import scope
from outlast.api.session_in_workflow import session
from outlast.api.step import step
from outlast.codec.signature import Unrecorded
from outlast.errors import NotInRun, SettingsError, VersionConflict
from outlast.integrations.claude_agent.program import ClaudeProgram, OnMessage, PauseKind
from outlast.integrations.claude_agent.session_store import MAIN, SUBPATH, SUMMARY, session_name
from outlast.integrations.claude_agent.tools import DurableTool, as_result, durable_tools
from outlast.integrations.claude_agent.transcript import (
    Entries,
    Result,
    TurnTranscript,
    missing_results,
    tool_calls,
)
from outlast.integrations.claude_agent.usage import TurnUsage

NOT_WITH_TURNS: Mapping[str, object] = {
    "resume": None,
    "session_id": None,
    "continue_conversation": False,
    "fork_session": False,
    "session_store": None,
    "resume_session_at": None,
    "enable_file_checkpointing": False,
}
"""The options that a turn sets itself, with their defaults."""


@dataclass(eq=False)
class Turn:
    """A turn as far as the run's journal tells it. The same in every execution of the run."""

    prompt: Any
    options: ClaudeAgentOptions
    session_id: str
    on_message: OnMessage | None
    needs_approval: Collection[str]
    ttl: float | None
    opened: dict[str, Any] = field(default_factory=dict)
    """The project, the session's version and its summary when the turn began."""
    entries: Entries = field(default_factory=dict)
    """What the turn has added to the transcript."""
    results: dict[str, Result] = field(default_factory=dict)
    """The results of in-process tools, by the ids of their calls."""
    answers: dict[str, Any] = field(default_factory=dict)
    """What the program gets for its last pause."""
    begun: set[str] = field(default_factory=set)
    """The ids of the program's own tools that it may have executed."""
    again: dict[str, list[Result]] = field(default_factory=dict)
    """Results of calls of sub-agents that begin again after a crash, by tool and arguments."""
    made: dict[str, str] = field(default_factory=dict)
    """The tool and arguments of the in-process calls, by their ids."""
    earlier: Entries | None = None
    """The entries from which the program that executes now began. None while there is none."""
    tools: dict[str, DurableTool] = field(default_factory=dict)
    """The durable tools, by the names that the model uses."""
    usage: TurnUsage = field(default_factory=TurnUsage)
    """What this program has cost."""

    def take(self, recorded: Mapping[str, Any]) -> None:
        """Add the recorded result of a step."""
        self.opened = self.opened or recorded["opened"]
        if recorded["resumed"]:
            kept = tool_calls(self.entries.get(MAIN, ()))
            self.again = {}
            for id, call in self.made.items():
                if id in self.results and id not in kept:
                    self.again.setdefault(call, []).append(self.results[id])
        for name, entries in recorded["entries"].items():
            self.entries.setdefault(name, []).extend(entries)


async def run_turn(
    prompt: str | list[dict[str, Any]],
    options: ClaudeAgentOptions | None = None,
    *,
    conversation: str | None = None,
    name: str = "claude",
    on_message: OnMessage | None = None,
    needs_approval: Collection[str] = (),
    ttl: float | None = None,
) -> ResultMessage:
    """Give Claude a prompt and return the result of its turn. Call it in a workflow.

        result = await run_turn("Where is order 7?", options, conversation="ada")

    Model calls are steps. Tools of a `durable_server` are steps or effects. After a crash the turn
    continues after the last call that was recorded. `prompt` may be a list of content blocks.

    Turns with the same `conversation` continue one session of the SDK. The session has whole turns
    only: a turn is appended when it ends. Raise VersionConflict if another turn was appended
    meanwhile. The session is kept for `ttl` seconds after its last use, and by default forever.

    `on_message(message)` gets every message of the SDK in the step, while it arrives. It may be
    async. A tool in `needs_approval` waits for the message `approval:CALL_ID` to the run: True, or
    False to reject the call.

    `name` is part of the keys of the calls. Options that choose the session are refused.
    """
    options = options or ClaudeAgentOptions()
    if place() is not Place.WORKFLOW:
        raise NotInRun("run_turn() is for the own code of an async workflow.")
    _check(options)
    session_id = str(uuid()) if conversation is None else _session_id(conversation)
    turn = Turn(prompt, options, session_id, on_message, frozenset(needs_approval), ttl)
    turn.tools = durable_tools(options.mcp_servers)
    async with scope(name):
        while True:
            recorded = await _ask(turn, prompt, session_id)
            turn.take(recorded)
            if recorded["result"] is not None:
                break
            turn.answers = await _answers(turn, recorded["pauses"])
        await _append(turn)
    return _as_message(recorded["result"])


def _check(options: ClaudeAgentOptions) -> None:
    given = [
        name
        for name, default in NOT_WITH_TURNS.items()
        if getattr(options, name, default) != default
    ]
    if given:
        raise SettingsError(
            f"run_turn() keeps the session itself, so options.{given[0]} cannot be set. Pass "
            "conversation=... to continue a conversation."
        )


def _session_id(conversation: str) -> str:
    """Return the id of a conversation's session. The SDK wants a UUID."""
    try:
        return str(UUID(conversation))
    except ValueError:
        return str(uuid5(NAMESPACE_URL, f"outlast:{conversation}"))


@step(name="claude.model")
async def _ask(
    turn: Annotated[Turn, Unrecorded],
    prompt: Any,  # noqa: ARG001 - compared when a run is replayed
    session_id: str,  # noqa: ARG001
) -> Any:
    """Let the program go on until it pauses."""
    found: dict[str, Any] = {}
    resumed = False
    try:
        if turn.earlier is None:
            found, turn.earlier = await _load(turn)
            turn.usage = TurnUsage()
            resumed = bool(turn.entries)
        program = await _open_program(turn)
        pauses, entries, result = await program.advance(turn.answers, turn.on_message)
        turn.usage.record_responses(entry for each in entries.values() for entry in each)
        if result is not None:
            turn.usage.record_result(result)
            await _close(turn)
    except BaseException:
        # The next attempt resumes the session in another program.
        await _close(turn)
        raise
    return {
        # The first step of the turn has it.
        "opened": {} if turn.opened else found,
        "resumed": resumed,
        "entries": entries,
        "pauses": [
            {"id": one.id, "kind": one.kind.value, "tool": one.tool, "input": one.input}
            for one in pauses
            if one.kind is not PauseKind.BATCH
        ],
        "result": result,
    }


async def _close(turn: Turn) -> None:
    turn.earlier = None
    await _open_program.close(turn)


@resource
async def _open_program(turn: Turn) -> AsyncIterator[ClaudeProgram]:
    """Start the program, from the stored session and from what the journal has of the turn."""
    earlier = turn.earlier or {}
    transcript = TurnTranscript(turn.session_id, earlier)
    transcript.add(MAIN, missing_results(earlier.get(MAIN, []), turn.results, turn.begun))
    program = ClaudeProgram(
        turn.prompt,
        turn.options,
        transcript,
        bool(turn.entries),
        turn.session_id,
        turn.needs_approval,
    )
    try:
        await program.start()
        yield program
    finally:
        await program.close()


async def _load(turn: Turn) -> tuple[dict[str, Any], Entries]:
    """Return the state of the stored session, and all entries up to now.

    Raise VersionConflict if the session has changed since the turn began.
    """
    project = turn.opened.get("project") or project_key_for_directory(turn.options.cwd)
    stored = session(session_name(project, turn.session_id), ttl=turn.ttl)
    info = await stored.info()
    version = 0 if info is None else info.version
    if turn.opened and turn.opened["version"] != version:
        raise VersionConflict(stored.id, turn.opened["version"], version)
    names = () if info is None else info.lists
    earlier: Entries = {
        name: await stored.last(name, None)
        for name in names
        if name == MAIN or name.startswith(SUBPATH)
    }
    for name, entries in turn.entries.items():
        earlier.setdefault(name, []).extend(entries)
    summary = None if info is None else await stored.get(SUMMARY)
    return {"project": project, "version": version, "summary": summary}, earlier


async def _answers(turn: Turn, pauses: list[dict[str, Any]]) -> dict[str, Any]:
    """Answer the program's questions, all at once."""
    found = await asyncio.gather(
        *(_answer(turn, pause) for pause in pauses), return_exceptions=True
    )
    for answer in found:
        if isinstance(answer, BaseException):
            raise answer
    answers = {pause["id"]: answer for pause, answer in zip(pauses, found, strict=True)}
    begun = [
        pause["id"]
        for pause in pauses
        if pause["kind"] == PauseKind.BUILTIN and answers[pause["id"]] is not False
    ]
    if begun:
        turn.begun.update(await _let_execute(begun))
    return answers


@step(name="claude.execute")
async def _let_execute(calls: list[str]) -> list[str]:
    """Record that the program may execute these tools of its own from now on."""
    return calls


async def _answer(turn: Turn, pause: dict[str, Any]) -> Any:
    """Execute an in-process tool, or decide whether the program may execute its own."""
    id, tool = pause["id"], pause["tool"]
    approved: bool | None = None
    if tool in turn.needs_approval:
        approved = await receive(f"approval:{id}", bool)
    if pause["kind"] == PauseKind.BUILTIN:
        return approved
    if approved is False:
        result = as_result("A person rejected this call.", is_error=True)
    else:
        result = await _result(turn, id, tool, pause["input"])
    turn.results[id] = result
    return result


async def _result(turn: Turn, id: str, tool: str, arguments: dict[str, Any]) -> Result:
    call = f"{tool} {sorted(arguments.items())!r}"
    turn.made[id] = call
    made_before = turn.again.get(call)
    if made_before:
        return made_before.pop(0)
    return await turn.tools[tool].result(id, arguments)


async def _append(turn: Turn) -> None:
    """Append the turn to the session, in one write that happens once."""
    project, version = turn.opened["project"], turn.opened["version"]
    main = turn.entries.get(MAIN, [])
    key: Any = {"project_key": project, "session_id": turn.session_id}
    summary = fold_session_summary(turn.opened["summary"], key, main)
    stored = session(session_name(project, turn.session_id), ttl=turn.ttl)
    await stored.update({SUMMARY: summary}, append=turn.entries, version=version)


def _as_message(recorded: Mapping[str, Any]) -> ResultMessage:
    """Return the SDK's result. Fields of another version of the SDK are left out."""
    known = {one.name for one in fields(ResultMessage)}
    return ResultMessage(**{name: value for name, value in recorded.items() if name in known})
