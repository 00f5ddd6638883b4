"""The workflows of the pods, in a process that cannot start a thread for layer 1 of its drain."""

import threading

from drain_flows import add, block_the_loop, blocks

__all__ = ["add", "block_the_loop", "blocks"]

start = threading.Thread.start


def start_unless_it_drains(thread: threading.Thread) -> None:
    if thread.name == "outlast-drain":
        raise RuntimeError("can't start new thread")
    start(thread)


threading.Thread.start = start_unless_it_drains  # type: ignore[method-assign]
