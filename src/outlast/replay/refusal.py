"""Refuse what workflow code may not do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from outlast.errors import NotInRun
from outlast.replay.bodies import BODY
from outlast.replay.loop import RunLoop
from outlast.replay.threads import THREAD

if TYPE_CHECKING:
    from outlast.replay.life import Life

E = TypeVar("E", bound=NotInRun)


def refused(error: E) -> E:
    """Return the error to raise for a call that was made here.

    In a workflow's own code it also ends the run, so that the refusal counts even if it is caught.
    Outside a run, and in a step's body, it is an exception like any other.
    """
    life = _life()
    return error if life is None else life.refuse(error)


def _life() -> Life | None:
    loop = asyncio._get_running_loop()
    if isinstance(loop, RunLoop):
        return loop.life
    thread = THREAD.get()
    return thread._life if thread is not None and BODY.get() is None else None
