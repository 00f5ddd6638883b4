"""Read and complete the transcripts of the Claude Agent SDK.

A transcript is a list of entries. Those of the type `assistant` hold the tool calls of the model,
those of the type `user` their results and what people wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from claude_agent_sdk import SessionKey, SessionListSubkeysKey, SessionStoreEntry

from outlast.integrations.claude_agent.session_store import MAIN, SUBPATH, list_name

Entry = dict[str, Any]
Entries = dict[str, list[Any]]
"""The entries of a session by the name of their list: the main transcript, and the sub-agents'."""
Result = dict[str, Any]
"""What a tool returns in the SDK: `{"content": [...], "is_error": ...}`."""

INTERRUPTED = (
    "The process ended before the result of this call was recorded, so it is not known whether it "
    "was executed. Find out before you repeat it."
)
NOT_EXECUTED = (
    "This call was not executed, because the process was restarted before. Make it again if it is "
    "still needed."
)
_SHARED = (
    "isSidechain",
    "promptId",
    "userType",
    "entrypoint",
    "cwd",
    "sessionId",
    "version",
    "gitBranch",
    "slug",
    "timestamp",
)
"""The fields that an entry with a result has in common with the entry of its call."""


def blocks(entry: Mapping[str, Any], kind: str) -> Iterator[Any]:
    """Yield the blocks of one type in the message of an entry."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, list):
        yield from (one for one in content if isinstance(one, dict) and one.get("type") == kind)


def tool_calls(entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries of the tool calls, by the ids of the calls."""
    return {
        str(call["id"]): entry
        for entry in entries
        if entry.get("type") == "assistant"
        for call in blocks(entry, "tool_use")
    }


def answered_calls(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the tool calls that have a result."""
    return {str(one["tool_use_id"]) for entry in entries for one in blocks(entry, "tool_result")}


def missing_results(
    entries: Sequence[Entry], results: Mapping[str, Result], begun: Collection[str]
) -> list[Entry]:
    """Return entries with the results of all tool calls that have none.

    The SDK's program forgets a tool call without a result, and the model would be asked again. The
    outcome of the calls in `begun` is unknown if they are not in `results`. All others were not
    executed.
    """
    calls, answered = tool_calls(entries), answered_calls(entries)
    lost = [results[id] for id in results if id not in calls]
    return [
        _result_entry(call, id, results.get(id) or _missing(id in begun, lost))
        for id, call in calls.items()
        if id not in answered
    ]


def _missing(begun: bool, lost: Sequence[Result]) -> Result:
    """Return the result of a call that has none.

    It lists the results of the calls that a sub-agent made, because the sub-agent begins again.
    """
    texts = [INTERRUPTED if begun else NOT_EXECUTED]
    if begun and lost:
        texts.append("Calls of sub-agents that ended before, and that are not repeated:")
        texts += [str(one.get("content")) for one in lost]
    return {"content": [{"type": "text", "text": "\n".join(texts)}], "is_error": True}


def _result_entry(call: Entry, id: str, result: Result) -> Entry:
    content = result.get("content", [])
    block: dict[str, Any] = {"tool_use_id": id, "type": "tool_result", "content": content}
    if result.get("is_error"):
        block["is_error"] = True
    return {
        "parentUuid": call.get("uuid"),
        **{name: call[name] for name in _SHARED if name in call},
        "type": "user",
        "message": {"role": "user", "content": [block]},
        # The same in every life.
        "uuid": str(uuid5(NAMESPACE_OID, f"{call.get('uuid')}/{id}")),
        "toolUseResult": content,
        "sourceToolAssistantUUID": call.get("uuid"),
    }


class TurnTranscript:
    """The transcript of a turn, as the SDK's program continues and extends it.

    It is the session store that the SDK gets. It writes nothing: what is appended becomes part of
    the result of a step.
    """

    def __init__(self, session_id: str, earlier: Mapping[str, Sequence[Any]]) -> None:
        """Continue the entries `earlier`. All appended entries get this session id."""
        self._session_id = session_id
        self._earlier = {name: list(entries) for name, entries in earlier.items()}
        self._added: Entries = {}
        self._calls: dict[str, str] = {}
        """The tools of the calls, by the ids of the calls."""
        self._unfinished: set[str] = set()
        """The calls of responses that were still arriving when they were appended."""
        self._answered: set[str] = set()
        self.on_append: Any = None
        """Called without arguments after entries were appended."""

    @property
    def is_new(self) -> bool:
        """Return whether there is nothing to resume."""
        return not self._earlier.get(MAIN) and not self._added.get(MAIN)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Keep new entries for the step that waits for them."""
        self.add(list_name(key), entries)
        if self.on_append is not None:
            self.on_append()

    def add(self, name: str, entries: Iterable[Any]) -> None:
        """Add entries to a list. The session is that of the turn, whatever the program calls it."""
        given = [
            {**entry, "sessionId": self._session_id} if "sessionId" in entry else dict(entry)
            for entry in entries
        ]
        self._added.setdefault(name, []).extend(given)
        for entry in given:
            for call in blocks(entry, "tool_use"):
                self._calls[str(call["id"])] = str(call["name"])
                if entry["message"].get("stop_reason") is None:
                    self._unfinished.add(str(call["id"]))
        self._answered |= answered_calls(given)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries to resume from."""
        name = list_name(key)
        entries = [*self._earlier.get(name, ()), *self._added.get(name, ())]
        return entries or None

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the paths of the transcripts of sub-agents."""
        return [
            name.removeprefix(SUBPATH)
            for name in {**self._earlier, **self._added}
            if name.startswith(SUBPATH)
        ]

    def has_calls(self, ids: Iterable[str]) -> bool:
        """Return whether these tool calls were appended."""
        return self._calls.keys() >= set(ids)

    def has_results(self, ids: Iterable[str]) -> bool:
        """Return whether the results of these tool calls were appended."""
        return self._answered.issuperset(ids)

    def is_unfinished(self, id: str) -> bool:
        """Return whether the response of a call was still arriving, as far as it is known."""
        return id in self._unfinished

    def beside(self, id: str, tools: Collection[str]) -> list[str]:
        """Return the open calls of these tools around a call, without another tool in between."""
        calls = list(self._calls)
        at = calls.index(id)
        around = [
            *takewhile(lambda one: self._calls[one] in tools, reversed(calls[:at])),
            *takewhile(lambda one: self._calls[one] in tools, calls[at:]),
        ]
        return [one for one in around if one not in self._answered]

    def take(self) -> Entries:
        """Return the entries that were added since the last call."""
        taken, self._added = self._added, {}
        for name, entries in taken.items():
            self._earlier.setdefault(name, []).extend(entries)
        return taken
