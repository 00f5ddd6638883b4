"""Read what the viewers of this process follow, once per tick for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from outlast.engine.background import Background
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.store_client import StoreClient
from outlast.engine.watching.page_cache import PageCache
from outlast.errors import StoreError, StoreUnavailable
from outlast.execution.shutdown_state import ShutdownState
from outlast.settings import Settings
from outlast.store.topics import Topic

if TYPE_CHECKING:
    from outlast.engine.watching.follower import Cursor, Follower

TICK_SHARE = 0.2
"""The pause between two rounds of reads, as a share of `publish_interval`."""
TICK_SECONDS_MIN, TICK_SECONDS_MAX = 0.01, 0.1
PAUSE_SECONDS = 0.2
"""The pause after a read that failed because the store was unavailable."""
PAGES_AT_ONCE = 2
"""How many viewers behind their window read from the store at once."""

T = TypeVar("T")
AnyFollower: TypeAlias = "Follower[Any, Any]"
F = TypeVar("F", bound="AnyFollower")


class Followers:
    """The followers of this process, and the task that reads for them.

    The task executes while there are followers.
    """

    # 16 attributes: five collaborators, the limits of reading, and the state of the task.

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
        self.poll, self._patience = settings.poll, settings.store_patience
        tick = settings.publish_interval * TICK_SHARE
        self._tick = min(max(tick, TICK_SECONDS_MIN), TICK_SECONDS_MAX)
        self._by_origin: WeakValueDictionary[str, AnyFollower] = WeakValueDictionary()
        self._publications = ChangeNotifier(background.loop)
        self._news = asyncio.Event()
        self._reading_pages = asyncio.Semaphore(PAGES_AT_ONCE)
        self._listens = self._observes = False
        self._task: asyncio.Task[None] | None = None

    def follow(self, origin: str, make: Callable[[], F]) -> F:
        """Return the follower with this origin, or make it."""
        follower = self._by_origin.get(origin)
        if follower is None or follower.failure is not None:
            follower = self._by_origin[origin] = make()
        return cast("F", follower)

    async def wait(self, follower: AnyFollower, *, opening: bool = False) -> None:
        """Wait until there is something new, or with `opening` until the store was read."""
        if opening:
            self._news.set()
        if self._task is None:
            self._observe()
            self._task = self._background.spawn(self._follow())
        await follower.wait(opening=opening)

    async def read_page(self, follower: AnyFollower, cursor: Cursor) -> bool:
        """Read the page after a cursor that is older than the window of its follower.

        Return False if the page is of another generation than the follower knows.
        """
        # A cancelled viewer must not end the bound: its thread still reads.
        reading = self._background.spawn(self._read_page(follower, cursor), quiet=True)
        return await asyncio.shield(reading)

    async def _read_page(self, follower: AnyFollower, cursor: Cursor) -> bool:
        async with self._reading_pages:
            generation = follower.known.generation
            if self.pages.find(follower.origin, generation, cursor.position) is not None:
                # Another viewer has read it meanwhile.
                return True
            page = await self._patiently(follower.read_page, self._client.store, cursor)
        if page is None or page[0] != generation:
            return False
        self.pages.add(follower.origin, generation, page[1])
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
        for follower in self._by_origin.values():
            follower.wake()

    async def _follow(self) -> None:
        loop = self._background.loop
        try:
            # Let the viewer that started this begin to wait.
            await asyncio.sleep(0)
            while self._waited_for():
                self._news.clear()
                began = loop.time()
                if await self._round(began):
                    continue
                await asyncio.sleep(max(0.0, began + self._tick - loop.time()))
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._next_poll()):
                        await self._news.wait()
        except Exception as error:
            for follower in self._waited_for():
                follower.fail(error)
            raise
        finally:
            self._task = None

    def _waited_for(self) -> list[AnyFollower]:
        return [
            follower
            for follower in self._by_origin.values()
            if follower.waiting and follower.failure is None
        ]

    def _next_poll(self) -> float:
        followers = self._waited_for()
        return min((one.read_at + one.poll for one in followers), default=0.0)

    async def _round(self, now: float) -> bool:
        """Read for each follower that is due. Return whether one of them has more to read."""
        # Loaded with the first viewer, because few programs have one.
        from outlast.engine.watching.shared_reads import read_all

        if not self._listens:
            await self._listen()
        followers = [
            one for one in self._waited_for() if one.opening or now >= one.read_at + one.pause
        ]
        if not followers:
            return False
        self.rounds_begun += 1
        round = self.rounds_begun
        for follower in followers:
            follower.read_at = now
            self._decide_check(follower, now)
        try:
            readings = await self._patiently(read_all, self._client.store, followers)
        except StoreUnavailable as error:
            readings = [error] * len(followers)
        for follower, reading in zip(followers, readings, strict=True):
            if isinstance(reading, StoreError):
                follower.fail(reading)
            else:
                follower.apply(reading, round)
        return any(follower.is_behind and follower.waiting for follower in followers)

    def _decide_check(self, follower: AnyFollower, now: float) -> None:
        """Look at the run if something has changed in the store, and else at every poll.

        Publications come ten times a second, and the end of a run once.
        """
        changes, at = follower.checked
        follower.checks_run = bool(
            follower.opening or changes != self._changes.count or now >= at + follower.poll
        )
        if follower.checks_run:
            follower.checked = (self._changes.count, now)

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
