"""A module that no SIGTERM can end: OUTLAST_SIGNALS=0, and a handler of its own that does nothing."""

import signal

from outlast import sleep, workflow

signal.signal(signal.SIGTERM, lambda *_: None)


@workflow
async def for_ever(topic: str) -> None:
    await sleep(3600)
