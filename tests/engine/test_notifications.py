"""Change notifications: bursts are merged and the last change is never lost."""

import asyncio

from outlast.engine.notifier import DEBOUNCE_SECONDS, ChangeNotifier
from outlast.testing import VirtualClock


def test_single_change_notifies_at_once():
    clock = VirtualClock()

    async def main():
        heard = []
        changes = ChangeNotifier(asyncio.get_running_loop())
        changes.subscribe(lambda: heard.append(clock.elapsed))
        for _ in range(3):
            changes.notify_threadsafe()
            await asyncio.sleep(1)
        return heard

    assert clock.run(main()) == [0.0, 1.0, 2.0]


def test_burst_of_changes_notifies_at_its_start_and_after_its_end():
    clock = VirtualClock()

    async def main():
        heard, written, seen = [], 0, []
        changes = ChangeNotifier(asyncio.get_running_loop())
        changes.subscribe(lambda: (heard.append(clock.elapsed), seen.append(written)))
        for _ in range(100):
            written += 1
            changes.notify_threadsafe()
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        return heard, seen

    heard, seen = clock.run(main())
    assert heard == [0.0, DEBOUNCE_SECONDS]
    assert seen[-1] == 100


def test_change_made_during_a_notification_notifies_again():
    clock = VirtualClock()

    async def main():
        heard = []

        def notified():
            heard.append(clock.elapsed)
            if len(heard) < 3:
                changes.notify_threadsafe()

        changes = ChangeNotifier(asyncio.get_running_loop())
        changes.subscribe(notified)
        changes.notify_threadsafe()
        await asyncio.sleep(1)
        return heard

    assert len(clock.run(main())) == 3
