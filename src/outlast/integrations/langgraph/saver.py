"""Keep the checkpoints of LangGraph in any store of Outlast."""

from __future__ import annotations

import asyncio
import builtins
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from outlast import sync
from outlast.api.internals import internals
from outlast.api.outlast import Outlast
from outlast.api.session import Session
from outlast.errors import NotInRun
from outlast.integrations.langgraph import saver_threads as threads
from outlast.integrations.langgraph.saver_layout import (
    OWNER,
    SESSIONS,
    Place,
    Record,
    config_of,
    metadata_of,
    packed,
    split,
    write_name,
)
from outlast.integrations.langgraph.saver_writes import GatheredWrites
from outlast.sync.internals import core_of, portal_of

T = TypeVar("T")

FIELDS_MAX = 100_000
"""How many fields a thread may have by default: some 20,000 supersteps of a small graph."""
PAGE = 500
REMEMBERED = 1_000
"""The number of threads whose last checkpoint a saver remembers."""


class OutlastSaver(BaseCheckpointSaver[str]):
    """A checkpointer on any store of Outlast, for `builder.compile(checkpointer=...)`:

        async with Outlast("postgresql://...") as app:
            graph = builder.compile(checkpointer=OutlastSaver(app))
            await graph.ainvoke(input, {"configurable": {"thread_id": "ada"}}, durability="sync")

    A thread is a session. Pass an app of `outlast.sync` for a sync program. An async app must be
    used from its own event loop, and the sync methods from other threads.
    """

    def __init__(
        self,
        app: Outlast | sync.Outlast,
        *,
        serde: SerializerProtocol | None = None,
        ttl: float | None = None,
        fields_max: int = FIELDS_MAX,
    ) -> None:
        """Keep threads in the sessions of `app`, which must be open when they are used.

        A thread is kept for `ttl` seconds after its last use, and by default forever. It may have
        `fields_max` fields: a superstep adds one for its checkpoint, one for each larger value that
        it changed, and one for each write of its tasks. Prune threads that reach the limit.
        """
        super().__init__(serde=serde)
        self._given = app
        self._app = core_of(app) if isinstance(app, sync.Outlast) else app
        self._ttl, self._fields_max = ttl, fields_max
        self._writes = GatheredWrites()
        self._last: dict[tuple[str, str], tuple[str, frozenset[str]]] = {}
        """The last checkpoint of a namespace that was put here, and its blobs."""

    # -- the fence

    async def atake(self, thread_id: str) -> RunnableConfig:
        """Become the only writer of a thread, and return the config for its runs.

        The runs of earlier owners raise NotOwner at their next write, and change nothing.
        Runs whose config has no owner are not checked.
        """

        async def take() -> RunnableConfig:
            owner = (await self._session(thread_id).take()).owner
            return {"configurable": {"thread_id": thread_id, OWNER: owner}}

        return await self._on_host(take)

    def take(self, thread_id: str) -> RunnableConfig:
        """Become the only writer of a thread. See `atake`."""
        return self._wait(lambda: self.atake(thread_id))

    # -- writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, in one commit with the writes that are waiting."""
        place = Place.of(config)
        namespace, key = place.namespace or "", (place.thread, place.namespace or "")
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        small, blobs = split(namespace, values, versions)
        record = Record(
            namespace,
            checkpoint["id"],
            place.checkpoint,
            packed(self.serde, {**checkpoint, "channel_values": small}),
            packed(self.serde, get_checkpoint_metadata(config, metadata)),
            blobs,
        )
        parent, stored = self._last.pop(key, (None, frozenset[str]()))
        if parent is None or parent != place.checkpoint:
            # Its blobs may have been deleted. Write them all, unless they are there.
            stored = frozenset()
        new = {
            name: packed(self.serde, values[channel])
            for channel, name in blobs.items()
            if name not in stored
        }

        async def put() -> None:
            await self._write(place, {**new, record.name: list(record)}, new, now=True)

        await self._on_host(put)
        self._remember(key, checkpoint["id"], frozenset(blobs.values()))
        return config_of(place.thread, namespace, checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a task has written. A write that is there already stays as it is."""
        place = Place.of(config)
        fields: dict[str, Any] = {}
        absent: set[str] = set()
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            name = write_name(place.namespace or "", place.checkpoint or "", task_id, index)
            fields[name] = [task_path, task_id, index, channel, packed(self.serde, value)]
            if index >= 0:
                absent.add(name)
        if not fields:
            return

        async def put() -> None:
            await self._write(place, fields, absent, now=False)

        await self._on_host(put)

    async def _write(self, place: Place, fields: dict[str, Any], absent: Any, *, now: bool) -> None:
        session = self._session(place.thread)
        if place.owner is not None:
            session = session.owned_by(place.owner)
        size, size_max = threads.size_of(fields), self._app.settings.value_size_max
        await self._writes.write(session, fields, absent, size=size, size_max=size_max, now=now)

    def _remember(self, key: tuple[str, str], id: str, blobs: frozenset[str]) -> None:
        self._last[key] = (id, blobs)
        if len(self._last) > REMEMBERED:
            del self._last[next(iter(self._last))]

    # -- reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes: the one that is named, or the newest."""
        place = Place.of(config)
        session = self._session(place.thread)
        loaded = await self._on_host(lambda: threads.load(session, self.serde, place))
        return loaded if loaded is None or not place.checkpoint else loaded._replace(config=config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, newest first. Without a config, thread by thread.

        `filter` compares the metadata. It reads every checkpoint.
        """
        found = self._listed(config, filter or {}, before, limit)
        if self._is_host:
            async for one in found:
                yield one
        else:
            for one in await self._on_host(lambda: _collected(found)):
                yield one

    async def _listed(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any],
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncIterator[CheckpointTuple]:
        bound = Place.of(before).checkpoint if before else None
        places = [Place.of(config)] if config else [Place(id) for id in await self._threads()]
        count = 0
        for place in places:
            session = self._session(place.thread)
            async for record in threads.records(session, place.namespace, bound):
                if limit is not None and count >= limit:
                    return
                metadata: dict[str, Any] = {**metadata_of(self.serde, record)}
                if place.checkpoint not in {None, record.id} or any(
                    metadata.get(name) != value for name, value in filter.items()
                ):
                    continue
                found = await threads.complete(session, self.serde, place, record)
                if found is not None:
                    count += 1
                    yield found

    async def _threads(self) -> builtins.list[str]:
        """Return the ids of all threads."""
        found: builtins.list[str] = []
        after: str | None = None
        while True:
            page = await self._app.sessions(SESSIONS, limit=PAGE, order="id", after=after)
            found += [info.id.removeprefix(SESSIONS) for info in page]
            if len(page) < PAGE:
                return found
            after = page[-1].id

    # -- deleting and copying

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread. Runs that own it raise NotOwner at their next write."""
        self._forget(thread_id)
        await self._on_host(self._session(thread_id).clear)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata names one of these runs.

        It reads the checkpoints of all threads.
        """
        gone = {*run_ids}

        def kept(there: builtins.list[Record]) -> set[str]:
            return {
                record.name
                for record in there
                if metadata_of(self.serde, record).get("run_id") not in gone
            }

        async def delete() -> None:
            for thread in await self._threads() if gone else []:
                self._forget(thread)
                await threads.delete(self._session(thread), kept)

        await self._on_host(delete)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy the checkpoints and writes of a thread to another one.

        The target keeps what it has. If the process dies, repeat the call: only complete
        checkpoints were copied.
        """
        source, target = self._session(source_thread_id), self._session(target_thread_id)
        self._forget(target_thread_id)
        await self._on_host(lambda: threads.copy(source, target))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads but the newest of each namespace, or all of them.

        With "keep_latest", the checkpoints that a DeltaChannel of the newest needs stay too. With
        "delete", each thread is deleted.
        """
        if strategy not in {"keep_latest", "delete"}:
            raise ValueError(f"strategy={strategy!r} must be 'keep_latest' or 'delete'.")

        def kept(there: builtins.list[Record]) -> set[str]:
            return threads.newest(self.serde, there)

        async def prune() -> None:
            for thread in map(str, thread_ids):
                self._forget(thread)
                session = self._session(thread)
                if strategy == "delete":
                    await session.clear()
                else:
                    await threads.delete(session, kept)

        await self._on_host(prune)

    def _forget(self, thread: str) -> None:
        for key in [key for key in self._last if key[0] == str(thread)]:
            self._last.pop(key, None)

    # -- the same for sync programs

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint."""
        return self._wait(lambda: self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a task has written. A write that is there already stays as it is."""
        self._wait(lambda: self.aput_writes(config, writes, task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes: the one that is named, or the newest."""
        return self._wait(lambda: self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Return the checkpoints that `alist` yields."""
        found = self.alist(config, filter=filter, before=before, limit=limit)
        yield from self._wait(lambda: _collected(found))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread. Runs that own it raise NotOwner at their next write."""
        self._wait(lambda: self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata names one of these runs. See `adelete_for_runs`."""
        self._wait(lambda: self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy the checkpoints and writes of a thread to another one. See `acopy_thread`."""
        self._wait(lambda: self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints but the newest of each namespace, or all. See `aprune`."""
        self._wait(lambda: self.aprune(thread_ids, strategy=strategy))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version that is greater than the current one, and differs between branches."""
        # Versions are compared as texts, so those of another saver keep their width. Short ones
        # keep a checkpoint within one page of a store.
        number = "" if current is None else str(current).partition(".")[0]
        return f"{int(number or 0) + 1:0{max(len(number), 8)}}.{random.getrandbits(40):010x}"

    # -- where calls are made

    def _session(self, thread_id: str) -> Session:
        id = f"{SESSIONS}{thread_id}"
        return self._app.session(id, ttl=self._ttl, fields_max=self._fields_max)

    @property
    def _host(self) -> asyncio.AbstractEventLoop:
        return internals(self._app).engine.loop

    @property
    def _is_host(self) -> bool:
        return asyncio._get_running_loop() is self._host

    async def _on_host(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a call on the event loop of the app, from any loop."""
        if self._is_host:
            return await make()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), self._host))

    def _wait(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a call on the event loop of the app and wait for it."""
        if isinstance(self._given, sync.Outlast):
            return portal_of(self._given).call(make)
        if self._is_host:
            raise NotInRun(
                "a sync method of OutlastSaver was called on the event loop of its app, which it "
                "would block. Use `await graph.ainvoke(...)`, or call the graph in a thread."
            )
        return asyncio.run_coroutine_threadsafe(make(), self._host).result()


async def _collected(found: AsyncIterator[T]) -> Sequence[T]:
    return [one async for one in found]
