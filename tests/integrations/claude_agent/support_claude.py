"""A support agent with a scripted model that notes every call outside the store.

`python support_claude.py STORE LOG [PROGRAM]` executes the run "r". PROGRAM is the SDK's program, by
default its stand-in. The agent calls two tools at once, an effect, a sub-agent, a tool of the program
and a tool that needs approval.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    Message,
    StreamEvent,
    ToolAnnotations,
    tool,
)
from messages_api import MessagesApi, blocks, call, check_pairs, text

from outlast import KEY, Outlast, WrongStatus, effect, publish, workflow
from outlast.integrations.claude_agent import (
    OutlastSessionStore,
    durable_server,
    effect_tool,
    run_turn,
    workflow_tool,
)

NOTES: list[Callable[[str], None]] = []
"""Where the calls are noted."""
CONVERSATION = "2f1b6c1e-7f0e-4a53-9c55-3f0f7a3f5c11"


def note(line: str) -> None:
    for write in NOTES:
        write(line)


READ_ONLY = ToolAnnotations(readOnlyHint=True)


@tool("weather", "Look up the weather", {"city": str}, READ_ONLY)
async def weather(args: dict[str, Any]) -> dict[str, Any]:
    note(f"weather {args['city']}")
    return {"content": [text(f"sunny in {args['city']}")]}


@effect(timeout=5, idempotent=True, undo=None)
async def refund(amount: int, key: str = KEY) -> str:
    """Pay money back."""
    note(f"refund {amount}\t{key}")
    return f"refunded {amount}"


@tool("delete", "Delete an account", {"account": str})
async def delete(args: dict[str, Any]) -> dict[str, Any]:
    note(f"delete {args['account']}")
    return {"content": [text(f"deleted {args['account']}")]}


@workflow
async def analyst(question: str) -> str:
    """Answer as an agent of its own, in a child run."""
    result = await run_turn(question, AGENT[-1])
    return str(result.result)


@workflow_tool
@tool("consult", "Ask the analyst", {"question": str})
async def consult(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [text(await analyst(args["question"]))]}


SHOP = durable_server("shop", tools=[weather, effect_tool(refund), consult, delete])
NEEDS_APPROVAL = "mcp__shop__delete"
TOOLS = ["mcp__shop__weather", "mcp__shop__refund", "mcp__shop__consult", NEEDS_APPROVAL]
APPROVAL = "approval:toolu_4_0_0"
QUESTION = "Is account a-7 in use?"
"""What the agent asks its sub-agent."""
BASH = "printf 'bash\\n' >> calls"
"""It notes its call in the file that the tests read, if it is executed there."""
GROUPS: list[list[tuple[str, dict[str, Any]]]] = [
    [("mcp__shop__weather", {"city": "Rome"}), ("mcp__shop__weather", {"city": "Oslo"})],
    [("mcp__shop__refund", {"amount": 5})],
    [("mcp__shop__consult", {"question": QUESTION})],
    [("Bash", {"command": BASH})],
    [(NEEDS_APPROVAL, {"account": "a-7"})],
]
"""What the model asks for, one response after the other."""
PLAN = [
    [["model 0"]],
    [["weather Rome"], ["weather Oslo"]],
    [["model 1"]],
    [["refund 5"]],
    [["model 2"]],
    [["analyst"]],
    [["model 3"]],
    [["bash"]],
    [["model 4"]],
    [["delete a-7"]],
    [["model 5"]],
]
"""Every model call and tool call of the agent: turns of chains of calls."""
RESULT = "all done"


def script(messages: list[dict]) -> list[dict]:
    """Ask for the first tools that have not succeeded. Answer at once as the analyst."""
    check_pairs(messages)
    if QUESTION in json.dumps(messages[0]):
        note("analyst")
        return [text("It is not in use.")]
    failed = {one["tool_use_id"] for one in blocks(messages, "tool_result") if one.get("is_error")}
    asked = [(one["id"], _call(one["name"], one["input"])) for one in blocks(messages, "tool_use")]
    done = {made for id, made in asked if id not in failed}
    for number, group in enumerate(GROUPS):
        missing = [one for one in group if _call(*one) not in done]
        if missing:
            note(f"model {number}")
            tried = sum(made == _call(*missing[0]) for _, made in asked)
            return [
                call(f"toolu_{number}_{at}_{tried}", name, **arguments)
                for at, (name, arguments) in enumerate(missing)
            ]
    note(f"model {len(GROUPS)}")
    return [text(RESULT)]


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


def stand_in(folder: Path, name: str = "stand-in") -> Path:
    """Return a program in this folder that starts the stand-in for the SDK's program."""
    program = folder / name
    file = Path(__file__).with_name("stand_in.py")
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{file}" "$@"\n')
    program.chmod(0o700)
    return program


def options(api: MessagesApi, folder: Path, program: Path | None = None) -> ClaudeAgentOptions:
    """Return the options of the agent, with everything that it writes in a folder."""
    return ClaudeAgentOptions(
        cli_path=program or stand_in(folder),
        cwd=folder,
        model="claude-sonnet-4-5",
        mcp_servers={"shop": SHOP},
        allowed_tools=[*TOOLS, "Bash"],
        setting_sources=[],
        include_partial_messages=True,
        env={
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
        },
    )


AGENT: list[ClaudeAgentOptions] = []
"""The options of the agent of this process."""


async def show(message: Message) -> None:
    """Publish the text that arrives."""
    if isinstance(message, StreamEvent):
        delta = message.event.get("delta", {})
        if delta.get("type") == "text_delta":
            await publish("answer", delta["text"])


@workflow
async def handle(question: str) -> str:
    result = await run_turn(
        question,
        AGENT[-1],
        conversation=CONVERSATION,
        on_message=show,
        needs_approval={NEEDS_APPROVAL},
    )
    return str(result.result)


async def check_session(app: Outlast) -> None:
    """Fail unless the stored session has one whole turn."""
    store = OutlastSessionStore(app)
    (found,) = [one for one in await app.sessions("claude:") if one.id.endswith(CONVERSATION)]
    project, _, session = found.id.removeprefix("claude:").rpartition("/")
    entries = await store.load({"project_key": project, "session_id": session})
    said = [one["message"] for one in entries if one["type"] in ("user", "assistant")]
    check_pairs(said)
    assert found.version == 1, found


async def main(store: str, log: Path, program: Path | None) -> None:
    def write(line: str) -> None:
        with log.open("a") as file:
            file.write(f"{line}\n")
        print("call", line)  # A test may stop the process here.

    NOTES.append(write)
    with MessagesApi(script) as api, tempfile.TemporaryDirectory() as config:
        AGENT.append(options(api, log.parent, program))
        AGENT[-1].env["CLAUDE_CONFIG_DIR"] = config
        async with Outlast(store) as app:
            run = await app.start(handle("My account, please."), id="r")
            # An earlier process may have finished it.
            with suppress(WrongStatus):
                await app.send("r", APPROVAL, True, message_id="yes")
            result = await run.result()
            await check_session(app)
            assert not api.errors, api.errors
            print(result)


if __name__ == "__main__":
    given = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), given))
