"""Define the cursor of a viewer: what it has seen of one stream of one run."""

from __future__ import annotations

import re
from hashlib import blake2s
from typing import NamedTuple

from outlast.errors import BadCursor
from outlast.store.rows import RunRow

_STREAM_CURSOR = re.compile(
    r"(?P<origin>[0-9a-f]{8})\.(?P<run>\d{1,18})\.(?P<server>[0-9a-f]{0,12})"
    r"\.(?P<position>\d{1,18})(\.(?P<end>[0-9a-f]{12}))?",
    re.ASCII,
)
_RUN_CURSOR = re.compile(
    r"(?P<origin>[0-9a-f]{8})\.(?P<run>\d{1,18})\.(?P<server>[0-9a-f]{0,12})"
    r"\.(?P<position>\d{1,18})\.e(?P<execution>\d{1,18})\.s(?P<state>[0-9a-f]{0,12})"
    r"(\.x(?P<executing>[0-9a-f]{12}))?(\.(?P<end>[0-9a-f]{12}))?",
    re.ASCII,
)


def digest(text: str, size: int = 6) -> str:
    return blake2s(text.encode(errors="surrogatepass"), digest_size=size).hexdigest()


def server_mark(server: str) -> str:
    """Return the short name of a server that a cursor carries."""
    return digest(server) if server else ""


def end_mark(row: RunRow) -> str:
    """Return what tells this end of a run from its other ends, before and after a retry."""
    return digest(f"{abs(row.fence)} {row.status} {row.ended!r}")


def origin_of(id: str, stream: str | None) -> str:
    """Return what tells these cursors from those of other runs and streams."""
    return digest(f"{len(id)} {id}" + ("" if stream is None else f" {stream}"), 4)


def _parsed(form: re.Pattern[str], text: str, origin: str) -> re.Match[str]:
    found = form.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise BadCursor(
            f"{text!r:.100} is not a cursor. Pass the cursor of an event, unchanged, or none "
            "to begin at the beginning."
        )
    if found["origin"] != origin:
        raise BadCursor(
            f"the cursor {text!r} belongs to another run or another stream. Pass it to the "
            "watch that returned it, or none to begin at the beginning."
        )
    return found


class StreamCursor(NamedTuple):
    """A place in a stream. The first one of a viewer has seen nothing."""

    run: int = 0
    server: str = ""
    """The mark of the server that answered."""
    position: int = 0
    """The position of the next value."""
    end: str = ""
    """The mark of the run's end, if the viewer has seen it."""

    @property
    def has_seen(self) -> bool:
        """Return whether the viewer has received anything that may no longer hold."""
        return self.position > 0 or bool(self.end)

    def text(self, origin: str) -> str:
        """Return the cursor as users see it."""
        end = f".{self.end}" if self.end else ""
        return f"{origin}.{self.run}.{self.server}.{self.position}{end}"

    @classmethod
    def parse(cls, text: str, origin: str) -> StreamCursor:
        """Return the cursor of this text. Raise BadCursor if it is not one of this stream."""
        found = _parsed(_STREAM_CURSOR, text, origin)
        position, run = int(found["position"]), int(found["run"])
        return cls(run, found["server"], position, found["end"] or "")


class RunCursor(NamedTuple):
    """What a viewer has seen of a run followed as a whole."""

    run: int = 0
    server: str = ""
    position: int = 0
    """The number of the last journal entry."""
    execution: int = 0
    """The fence of the last execution, doubled, plus 1 if its end was seen."""
    state: str = ""
    """The mark of the run's state."""
    end: str = ""
    executing: str = ""
    """The mark of the steps that execute. Empty: none."""

    @property
    def has_seen(self) -> bool:
        """Return whether the viewer has received anything that may no longer hold."""
        return bool(self.position or self.execution or self.state or self.end)

    def text(self, origin: str) -> str:
        """Return the cursor as users see it."""
        run, server, position, execution, state, end, executing = self
        executing = f".x{executing}" if executing else ""
        end = f".{end}" if end else ""
        return f"{origin}.{run}.{server}.{position}.e{execution}.s{state}{executing}{end}"

    @classmethod
    def parse(cls, text: str, origin: str) -> RunCursor:
        """Return the cursor of this text. Raise BadCursor if it is not one of this run."""
        found = _parsed(_RUN_CURSOR, text, origin)
        return cls(
            int(found["run"]),
            found["server"],
            int(found["position"]),
            int(found["execution"]),
            found["state"],
            found["end"] or "",
            found["executing"] or "",
        )
