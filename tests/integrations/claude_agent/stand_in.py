"""Stand in for the SDK's program: speak its protocol, call its tools, write its transcripts.

It asks the Messages API at ANTHROPIC_BASE_URL. Like the real program, it keeps its transcript in a
file and mirrors it to the SDK a moment later, asks hooks, forgets tool calls without a result when
it resumes, and executes calls of read-only tools at once. It has one tool of its own, Bash.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

VERSION = "2.1.327"
MIRROR_DELAY = 0.02
MODEL = "claude-stand-in"
PRICE = 0.001


class Program:
    """One process of the program, which executes one turn after the other."""

    def __init__(self, arguments: list[str]) -> None:
        self.resume = _option(arguments, "--resume")
        self.session = self.resume or _option(arguments, "--session-id") or str(uuid.uuid4())
        self.mirrors = "--session-mirror" in arguments
        self.partial = "--include-partial-messages" in arguments
        servers = json.loads(_option(arguments, "--mcp-config") or '{"mcpServers": {}}')
        self.servers = [
            name for name, one in servers["mcpServers"].items() if one.get("type") == "sdk"
        ]
        self.hooks: dict = {}
        self.tools: dict[str, tuple[str, dict]] = {}
        self.answers: dict[str, Future] = {}
        self.unsent: list[dict] = []
        self.lock = threading.RLock()
        self.interrupted = False
        config = os.environ.get("CLAUDE_CONFIG_DIR") or str(Path.home() / ".claude")
        self.cwd = str(Path.cwd().resolve())
        project = re.sub(r"[^a-zA-Z0-9]", "-", self.cwd)
        self.file = Path(config) / "projects" / project / f"{self.session}.jsonl"
        self.entries = self._load()

    # The protocol

    def main(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if message["type"] == "control_response":
                response = message["response"]
                self.answers.pop(response["request_id"]).set_result(response)
            elif message["type"] == "control_request":
                self._control(message["request_id"], message["request"])
            elif message["type"] == "user":
                _in_thread(self._turn, message["message"]["content"])
        # As the real program does, it ends with its input.
        os._exit(0)

    def _control(self, id: str, request: dict) -> None:
        if request["subtype"] == "initialize":
            self.hooks = request.get("hooks") or {}
        elif request["subtype"] == "interrupt":
            self.interrupted = True
        response = {"subtype": "success", "request_id": id, "response": {"commands": []}}
        self.send({"type": "control_response", "response": response})

    def send(self, message: dict) -> None:
        with self.lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    def ask(self, request: dict) -> dict:
        """Send a control request and return the answer of the SDK."""
        id = str(uuid.uuid4())
        answer = self.answers[id] = Future()
        self.send({"type": "control_request", "request_id": id, "request": request})
        response = answer.result()
        if response["subtype"] == "error":
            raise RuntimeError(response["error"])
        return response.get("response") or {}

    def ask_server(self, server: str, method: str, **params: object) -> dict:
        message = {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params}
        request = {"subtype": "mcp_message", "server_name": server, "message": message}
        answer = self.ask(request)["mcp_response"]
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        return answer["result"]

    def ask_hooks(self, event: str, tool: str, id: str | None, **given: object) -> str | None:
        """Ask the hooks of an event, and return why a call is denied."""
        denied = None
        for matcher in self.hooks.get(event) or ():
            if matcher.get("matcher") and not re.fullmatch(matcher["matcher"], tool):
                continue
            for callback in matcher["hookCallbackIds"]:
                given = {"hook_event_name": event, "session_id": self.session, **given}
                request = {"subtype": "hook_callback", "callback_id": callback}
                answer = self.ask({**request, "input": given, "tool_use_id": id})
                decided = answer.get("hookSpecificOutput", {})
                if decided.get("permissionDecision") == "deny":
                    denied = decided.get("permissionDecisionReason", "denied")
        return denied

    def connect(self) -> None:
        """Connect the servers of the SDK and list their tools."""
        for server in self.servers:
            client = {"name": "stand-in", "version": VERSION}
            self.ask_server(
                server,
                "initialize",
                protocolVersion="2025-06-18",
                capabilities={},
                clientInfo=client,
            )
            for tool in self.ask_server(server, "tools/list")["tools"]:
                self.tools[f"mcp__{server}__{tool['name']}"] = server, tool

    # The transcript

    def _load(self) -> list[dict]:
        if not self.resume:
            return []
        if not self.file.exists():
            sys.exit(f"No conversation found with session ID: {self.resume}")
        entries = [json.loads(line) for line in self.file.read_text().splitlines()]
        answered = {
            one["tool_use_id"] for entry in entries for one in _blocks(entry, "tool_result")
        }
        return [
            entry
            for entry in entries
            if all(one["id"] in answered for one in _blocks(entry, "tool_use"))
        ]

    def record(self, kind: str, role: str, content: object, **more: object) -> dict:
        entry = {
            "parentUuid": self.entries[-1].get("uuid") if self.entries else None,
            "isSidechain": False,
            "type": kind,
            "message": {"role": role, "content": content, **more},
            "uuid": str(uuid.uuid4()),
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": VERSION,
        }
        with self.lock:
            self.entries.append(entry)
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            self.unsent.append(entry)
            if len(self.unsent) == 1:
                threading.Timer(MIRROR_DELAY, self.mirror).start()
        return entry

    def mirror(self) -> None:
        with self.lock:
            unsent, self.unsent = self.unsent, []
            if unsent and self.mirrors:
                frame = {"type": "transcript_mirror", "filePath": str(self.file)}
                self.send({**frame, "entries": unsent})

    # The turn

    def _turn(self, prompt: object) -> None:
        if not self.tools:
            self.connect()
        init = {"type": "system", "subtype": "init", "cwd": self.cwd, "tools": [*self.tools]}
        more = {"session_id": self.session, "model": MODEL, "claude_code_version": VERSION}
        self.send({**init, **more, "uuid": str(uuid.uuid4())})
        if self.entries and self.entries[-1]["type"] == "user":
            # The roles alternate.
            nothing = [{"type": "text", "text": "No response requested."}]
            self.record("assistant", "assistant", nothing, id=f"msg_{uuid.uuid4()}")
        self.record("user", "user", prompt)
        usages: list[dict] = []
        while not self.interrupted:
            response = self.call_model()
            usages.append(response["usage"])
            if response["stop_reason"] != "tool_use":
                self.end(response["content"], usages)
                return
            self.execute([one for one in response["content"] if one["type"] == "tool_use"])

    def call_model(self) -> dict:
        base = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
        connection = HTTPConnection(base.hostname, base.port)
        request = {"model": MODEL, "messages": self.messages(), "tools": [{"name": "Bash"}]}
        connection.request("POST", "/v1/messages", json.dumps(request).encode())
        response = json.loads(connection.getresponse().read())
        connection.close()
        with self.lock:
            self.show(response)
        return response

    def show(self, response: dict) -> None:
        """Report the blocks of a response. The real program, too, mirrors them together."""
        more = {name: response[name] for name in ("id", "usage", "stop_reason")}
        for block in response["content"]:
            if self.partial and block["type"] == "text":
                delta = {"type": "text_delta", "text": block["text"]}
                event = {"type": "content_block_delta", "index": 0, "delta": delta}
                self.send(self._frame("stream_event", event=event))
            entry = self.record("assistant", "assistant", [block], model=MODEL, **more)
            self.send(self._frame("assistant", message=entry["message"], uuid=entry["uuid"]))

    def _frame(self, kind: str, **more: object) -> dict:
        return {
            "type": kind,
            "session_id": self.session,
            "parent_tool_use_id": None,
            "uuid": str(uuid.uuid4()),
            **more,
        }

    def messages(self) -> list[dict]:
        """Return the history as the API takes it: the roles alternate."""
        merged: list[dict] = []
        for entry in self.entries:
            if entry["type"] not in ("user", "assistant"):
                continue
            content = entry["message"]["content"]
            content = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if merged and merged[-1]["role"] == entry["type"]:
                merged[-1]["content"] += content
            else:
                merged.append({"role": entry["type"], "content": [*content]})
        return merged

    def execute(self, calls: list[dict]) -> None:
        """Execute the calls of a response: read-only ones at once, others one after the other."""
        with ThreadPoolExecutor(8) as pool:
            together: list[Future] = []
            for call in calls:
                if self.is_read_only(call["name"]):
                    together.append(pool.submit(self.call_tool, call))
                    continue
                for one in together:
                    one.result()
                together.clear()
                self.call_tool(call)
            for one in together:
                one.result()
        ended = [{"tool_name": one["name"], "tool_use_id": one["id"]} for one in calls]
        self.ask_hooks("PostToolBatch", "", f"hook-{uuid.uuid4()}", tool_calls=ended)

    def is_read_only(self, name: str) -> bool:
        _, tool = self.tools.get(name, ("", {}))
        return bool((tool.get("annotations") or {}).get("readOnlyHint"))

    def call_tool(self, call: dict) -> None:
        name, arguments, id = call["name"], call["input"], call["id"]
        given = {"tool_name": name, "tool_input": arguments, "tool_use_id": id}
        denied = self.ask_hooks("PreToolUse", name, id, **given)
        try:
            if denied:
                result = {"content": denied, "isError": True}
            elif name == "Bash":
                command = ["/bin/sh", "-c", arguments["command"]]
                done = subprocess.run(command, capture_output=True, check=False)
                result = {"content": done.stdout.decode(), "isError": done.returncode != 0}
            else:
                server, tool = self.tools[name]
                meta = {"claudecode/toolUseId": id}
                asked = {"name": tool["name"], "arguments": arguments, "_meta": meta}
                result = self.ask_server(server, "tools/call", **asked)
        except Exception as error:
            result = {"content": str(error), "isError": True}
        block = {"tool_use_id": id, "type": "tool_result", "content": result["content"]}
        if result.get("isError"):
            block["is_error"] = True
        entry = self.record("user", "user", [block])
        self.send(self._frame("user", message=entry["message"], uuid=entry["uuid"]))

    def end(self, content: list[dict], usages: list[dict]) -> None:
        self.mirror()
        usage = {name: sum(one[name] for one in usages) for name in usages[0]}
        self.send(
            {
                **self._frame("result", subtype="success", is_error=False, usage=usage),
                "duration_ms": 1,
                "duration_api_ms": 1,
                "num_turns": len(usages),
                "result": "".join(one.get("text", "") for one in content),
                "stop_reason": "end_turn",
                "total_cost_usd": PRICE * len(usages),
            }
        )


def _blocks(entry: dict, kind: str) -> list[dict]:
    content = entry.get("message", {}).get("content")
    return [one for one in content if one["type"] == kind] if isinstance(content, list) else []


def _option(arguments: list[str], name: str) -> str | None:
    for at, argument in enumerate(arguments):
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
        if argument == name:
            return arguments[at + 1]
    return None


def _in_thread(call, *arguments: object) -> None:
    def execute() -> None:
        try:
            call(*arguments)
        except Exception as error:
            # The SDK reports how the program ended.
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)

    threading.Thread(target=execute, daemon=True).start()


if __name__ == "__main__":
    if sys.argv[1:] in (["-v"], ["--version"]):
        print(f"{VERSION} (Claude Code)")
    else:
        Program(sys.argv[1:]).main()
