"""What the tests of published streams share: a stream's text, and a viewer of it."""

import json

from outlast.testing.conformance.stream_driver import Viewer


def published(world, name="answer", id="run"):
    """Return the values of a stream in the order of viewers."""
    stream = world.store.stream(world.row(id).pk, name)
    if stream is None:
        return None
    return [value for chunk in stream.chunks for value in json.loads(chunk.values)]


def text_of(world, name="answer", id="run"):
    return "".join(published(world, name, id) or [])


def rows_of(world, name="answer", id="run"):
    return len(world.store.stream(world.row(id).pk, name).chunks)


class Screen(Viewer):
    """A viewer of the stream `answer` of a world's run."""

    def look(self, world):
        self.read(world, world.row())
        return self.seen
