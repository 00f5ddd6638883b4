"""Read what the viewers of this process follow, once per tick for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar
from weakref import WeakValueDictionary

from outlast.engine.background import Background
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.store_client import StoreClient
from outlast.engine.watching.cursor import StreamCursor
from outlast.engine.watching.page_cache import PageCache
from outlast.engine.watching.stream_follower import StreamFollower
from outlast.engine.watching.stream_reader import StreamReading, read_page
from outlast.errors import StoreBroken, StoreError, StoreUnavailable
from outlast.execution.shutdown_state import ShutdownState
from outlast.settings import Settings
from outlast.store.protocol import Store
from outlast.store.topics import Topic

TICK_SHARE = 0.2
"""The pause between two rounds of reads, as a share of `publish_interval`."""
TICK_SECONDS_MIN, TICK_SECONDS_MAX = 0.01, 0.1
PAUSE_SECONDS = 0.2
"""The pause after a read that failed because the store was unavailable."""
PAGES_AT_ONCE = 2
"""How many viewers behind their window read from the store at once."""

T = TypeVar("T")


class Followers:
    """The followers of this process, and the task that reads for them.

    The task executes while there are followers.
    """

    def __init__(
        self,
        client: StoreClient,
        changes: ChangeNotifier,
        *,
        background: Background,
        shutdown: ShutdownState,
        settings: Settings,
    ) -> None:
        self.shutdown = shutdown
        self.pages = PageCache()
        self.rounds_begun = 0
        """A viewer that waits for a later round gets what the store had after this moment."""
        self._client = client
        self._changes = changes
        self._background = background
        self._poll, self._patience = settings.poll, settings.store_patience
        tick = settings.publish_interval * TICK_SHARE
        self._tick = min(max(tick, TICK_SECONDS_MIN), TICK_SECONDS_MAX)
        self._by_key: WeakValueDictionary[tuple[str, str], StreamFollower] = WeakValueDictionary()
        self._publications = ChangeNotifier(background.loop)
        self._news = asyncio.Event()
        self._reading_pages = asyncio.Semaphore(PAGES_AT_ONCE)
        self._listens = self._observes = False
        self._task: asyncio.Task[None] | None = None

    def follow(self, id: str, stream: str, cursor: StreamCursor) -> StreamFollower:
        """Return the follower of a stream, and read the store soon."""
        follower = self._by_key.get((id, stream))
        if follower is None or follower.failure is not None:
            follower = self._by_key[id, stream] = StreamFollower(id, stream, cursor)
        return follower

    async def wait(self, follower: StreamFollower, *, opening: bool = False) -> None:
        """Wait until there is something new, or with `opening` until the store was read."""
        if opening:
            self._news.set()
        if self._task is None:
            self._observe()
            self._task = self._background.spawn(self._follow())
        await follower.wait(opening=opening)

    async def read_page(self, follower: StreamFollower, cursor: StreamCursor) -> bool:
        """Read the page after a cursor that is older than the window of its follower.

        Return False if the page is of another generation than the follower knows.
        """
        # A cancelled viewer must not end the bound: its thread still reads.
        reading = self._background.spawn(self._read_page(follower, cursor), quiet=True)
        return await asyncio.shield(reading)

    async def _read_page(self, follower: StreamFollower, cursor: StreamCursor) -> bool:
        async with self._reading_pages:
            generation = follower.generation
            if self.pages.find(follower.stream, generation, cursor.position) is not None:
                # Another viewer has read it meanwhile.
                return True
            query = follower.older(cursor)
            page = await self._patiently(read_page, self._client.store, query)
        if page is None or page[0] != generation:
            return False
        self.pages.add(follower.stream, generation, page[1])
        return True

    # -- the task

    def _observe(self) -> None:
        if self._observes:
            return
        self._observes = True
        self._changes.observe(self._news.set)
        self._publications.observe(self._news.set)
        for moment in (self.shutdown.announced, self.shutdown.close_began):
            moment.add_done_callback(lambda _: self._wake_viewers())

    def _wake_viewers(self) -> None:
        for follower in self._by_key.values():
            follower.wake()

    async def _follow(self) -> None:
        loop = self._background.loop
        try:
            # Let the viewer that started this begin to wait.
            await asyncio.sleep(0)
            while followers := self._waited_for():
                self._news.clear()
                began = loop.time()
                await self._round(followers)
                has_more = any(follower.is_behind for follower in followers)
                # A follower ends with its last viewer.
                del followers
                if not has_more:
                    await asyncio.sleep(max(0.0, began + self._tick - loop.time()))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._poll):
                            await self._news.wait()
        except Exception as error:
            for follower in self._waited_for():
                follower.fail(error)
            raise
        finally:
            self._task = None

    def _waited_for(self) -> list[StreamFollower]:
        return [
            follower
            for follower in self._by_key.values()
            if follower.waiting and follower.failure is None
        ]

    async def _round(self, followers: Sequence[StreamFollower]) -> None:
        """Read what has changed for each follower."""
        if not self._listens:
            await self._listen()
        self.rounds_begun += 1
        round = self.rounds_begun
        try:
            readings = await self._patiently(_read_all, self._client.store, followers)
        except StoreUnavailable as error:
            readings = [error] * len(followers)
        for follower, reading in zip(followers, readings, strict=True):
            if isinstance(reading, StoreError):
                follower.fail(reading)
            else:
                follower.apply(reading, round)

    async def _listen(self) -> None:
        """Listen for publications. If the store is unavailable, the next round tries again."""
        with suppress(StoreUnavailable):
            await self._client.read(
                self._client.store.listen, self._publications.notify_threadsafe, Topic.STREAMS
            )
            self._listens = True

    async def _patiently(self, read: Callable[..., T], *args: object) -> T:
        """Read in a thread. Repeat it for `store_patience` seconds if the store is unavailable."""
        loop = self._background.loop
        deadline = loop.time() + self._patience
        while True:
            try:
                return await self._client.read(read, *args)
            except StoreUnavailable:
                if loop.time() + PAUSE_SECONDS > deadline or self.shutdown.closing:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)


def _read_all(
    store: Store, followers: Sequence[StreamFollower]
) -> list[StreamReading | StoreError | None]:
    """Read for each follower. What is damaged fails only its own follower."""
    found: list[StreamReading | StoreError | None] = []
    for follower in followers:
        try:
            found.append(follower.read(store))
        except StoreBroken as error:
            found.append(error)
    return found
