"""Maintain the sessions of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlast.store.commands import SESSION_MEMORY, Prune

if TYPE_CHECKING:
    from outlast.store.protocol import Store
    from outlast.store.writer.group_commit_writer import GroupCommitWriter


async def prune_sessions(store: Store, writer: GroupCommitWriter, batch: int) -> int:
    """Delete expired sessions and the remains of cleared ones, in batches, and return how many.

    A session is kept until no client can repeat a change of it.
    """
    deleted = 0
    count = 1
    while count:
        count = await writer.execute(Prune(store.now() - SESSION_MEMORY, batch, sessions=True))
        deleted += count
    return deleted
