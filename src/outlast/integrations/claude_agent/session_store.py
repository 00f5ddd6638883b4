"""Keep the transcripts of the Claude Agent SDK in the sessions of Outlast.

One Claude session is one session of Outlast. Its main transcript is the list `entries`, the
transcript of each sub-agent is a list of its own, and the summary is the field `summary`. One write
appends entries together with the summary, and deleting a session deletes all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from claude_agent_sdk import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
)

from outlast.api.outlast import Outlast
from outlast.api.session import Session
from outlast.api.session_in_workflow import session
from outlast.api.session_info import SessionInfo
from outlast.errors import SettingsError, VersionConflict

MAIN = "entries"
"""The list of the main transcript."""
SUMMARY = "summary"
SUBPATH = "sub/"
"""What the names of the lists of sub-agents begin with."""
PAGE = 1_000
REMEMBERED = 64
"""The number of sessions whose entry ids a store keeps in memory."""


@dataclass
class _Known:
    """What a store knows of a session as of a version, so that an append reads nothing."""

    version: int = 0
    summary: Any = None
    uuids: dict[str, set[str]] = field(default_factory=dict)
    """The ids of the entries, by list."""


class OutlastSessionStore(SessionStore):
    """A session store of the Claude Agent SDK on any store of Outlast.

        options = ClaudeAgentOptions(session_store=OutlastSessionStore(app))

    An entry whose `uuid` is already stored is ignored. Processes may append to one session at the
    same time: each append is written together with the summary that includes it.
    """

    def __init__(self, app: Outlast | None = None, *, ttl: float | None = None) -> None:
        """Keep transcripts in the sessions of `app`, which must be open when they are used.

        Without `app`, use those of the run whose step uses this store. Such a store cannot list
        sessions. A session is kept for `ttl` seconds after its last use, and by default forever.
        """
        self._app, self._ttl = app, ttl
        self._known: dict[str, _Known] = {}
        self._owned: dict[str, Session] = {}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries and update the summary, in one write."""
        session, name = self._session(key), list_name(key)
        known = self._known.pop(session.id, None)
        while entries:
            if known is None or name not in known.uuids:
                known = await _read(session, name, known)
            new = _new(entries, known.uuids[name])
            if not new:
                break
            summary = known.summary
            if name == MAIN:
                summary = fold_session_summary(summary, key, new)
            fields = {SUMMARY: summary} if name == MAIN else {}
            try:
                known.version = await session.update(
                    fields, append={name: new}, version=known.version
                )
            except VersionConflict:
                # Another process has appended.
                known = None
                continue
            known.summary = summary
            break
        if known is not None:
            self._known[session.id] = known
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript, or None if it has none."""
        entries: list[Any] = await self._session(key).last(list_name(key), None)
        return entries or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project with the time of their last change."""
        prefix = session_name(project_key, "")
        return [
            {"session_id": info.id.removeprefix(prefix), "mtime": _mtime(info)}
            for info in await self._infos(prefix)
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of a project's sessions."""
        found: list[Any] = []
        for info in await self._infos(session_name(project_key, "")):
            summary = await self._open(info.id).get(SUMMARY)
            if summary is not None:
                found.append({**summary, "mtime": _mtime(info)})
        return found

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with the transcripts of its sub-agents, or only that of one of them."""
        session, name = self._session(key), list_name(key)
        self._known.pop(session.id, None)
        await (session.clear() if name == MAIN else session.delete(name))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the paths of the transcripts of a session's sub-agents."""
        info = await self._session(key).info()
        lists = {} if info is None else info.lists
        return [name.removeprefix(SUBPATH) for name in lists if name.startswith(SUBPATH)]

    async def take(self, key: SessionKey) -> None:
        """Become the only writer of a session. Appends of earlier owners are refused from now on.

        So a process that was considered dead cannot add to a transcript that another continues.
        """
        session = self._session(key)
        self._owned[session.id] = await session.take()

    def _session(self, key: SessionKey | SessionListSubkeysKey) -> Session:
        id = session_name(key["project_key"], key["session_id"])
        return self._owned.get(id) or self._open(id)

    def _open(self, id: str) -> Session:
        open = session if self._app is None else self._app.session
        return open(id, ttl=self._ttl)

    async def _infos(self, prefix: str) -> list[SessionInfo]:
        """Return the sessions that have a main transcript."""
        if self._app is None:
            raise SettingsError(
                "this session store cannot list sessions. Create it with OutlastSessionStore(app)."
            )
        found: list[SessionInfo] = []
        after: str | None = None
        while True:
            page = await self._app.sessions(prefix, limit=PAGE, order="id", after=after)
            found += [info for info in page if MAIN in info.lists]
            if len(page) < PAGE:
                return found
            after = page[-1].id


async def _read(session: Session, name: str, known: _Known | None) -> _Known:
    """Read what an append to a list needs to know.

    The version is read first. If the session changes afterwards, the write that expects this
    version is refused.
    """
    info = await session.info()
    if info is None:
        return _Known(uuids={name: set()})
    entries = await session.last(name, None) if name in info.lists else []
    if known is None or known.version != info.version:
        known = _Known(info.version, await session.get(SUMMARY))
    known.uuids[name] = {entry["uuid"] for entry in entries if "uuid" in entry}
    return known


def _new(entries: list[SessionStoreEntry], known: set[str]) -> list[SessionStoreEntry]:
    """Return the entries that are not known, and add them to what is known.

    Entries without a `uuid` are always new.
    """
    new: list[Any] = []
    for entry in entries:
        uuid = entry.get("uuid")
        if uuid is None or uuid not in known:
            new.append(entry)
        if uuid is not None:
            known.add(uuid)
    return new


def session_name(project: str, session: str) -> str:
    """Return the id of a session. A project that contains a slash cannot reach another's."""
    return f"claude:{project.replace('%', '%25').replace('/', '%2F')}/{session}"


def list_name(key: SessionKey) -> str:
    subpath = key.get("subpath")
    return f"{SUBPATH}{subpath}" if subpath else MAIN


def _mtime(info: SessionInfo) -> int:
    return int(info.updated_at.timestamp() * 1000)
