"""Generate the work to submit: chaos's own workflows, or workflows that the user names.

The n-th piece is the same for the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from outlast.api.workflow import Call, Workflow
from outlast.store.commands import ITEM
from outlast.store.rows import RunRow
from outlast.tools.chaos import flows


class Piece(NamedTuple):
    """One run to submit, or one item to put."""

    id: str
    call: Call[Any] | None
    payload: Any = None
    """The payload of an item."""


class Work:
    """Generate runs with the ids `chaos-SEED-NUMBER-WORKFLOW`, so that their count identifies them.

    The runs have their own queue: no other worker claims them, and chaos's workers claim nothing
    else.
    """

    def __init__(self, seed: int, calls: Sequence[tuple[Workflow[..., Any], Any]]) -> None:
        """Generate `calls` in turn: workflows with their arguments, a list or an object."""
        self.seed = seed
        self._calls = calls
        self.queue = f"chaos-{seed}"
        self.items: str | None = None
        """The queue of items, if there are any."""

    @property
    def queues(self) -> frozenset[str]:
        """Return all queues of this work."""
        return frozenset({self.queue, *([self.items] if self.items is not None else [])})

    def piece(self, number: int) -> Piece:
        flow, arguments = self._calls[number % len(self._calls)]
        filled = _filled(arguments, number)
        call = flow(**filled) if isinstance(filled, dict) else flow(*filled)
        return Piece(f"chaos-{self.seed}-{number:06}-{flow.name}", call)

    def is_for_cancelling(self, id: str) -> bool:  # noqa: ARG002 - Demo uses it
        """Return whether the run never ends by itself."""
        return False

    def amiss(self, row: RunRow) -> str | None:  # noqa: ARG002 - Demo uses it
        """Return what is wrong with a run's outcome.

        None if nothing is, or if there is no rule for it.
        """
        return None


class Demo(Work):
    """Generate chaos's own workload. Every fourth piece is an item."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ())
        self.items = f"chaos-{seed}-items"

    def piece(self, number: int) -> Piece:
        if number % 4 == 3:
            return Piece(f"chaos-{self.seed}-{number:06}", None, payload=(number % 7) / 20)
        flow = flows.FLOWS[(number - number // 4) % len(flows.FLOWS)]
        return Piece(f"chaos-{self.seed}-{number:06}-{flow.name}", flow(number))

    def is_for_cancelling(self, id: str) -> bool:
        return id.endswith("-endless")

    def amiss(self, row: RunRow) -> str | None:
        if row.id.startswith(f"{self.items}/"):
            may: tuple[flows.Ending, ...] = (flows.Ending("done"),)
        elif row.parent is None and row.id.startswith(f"chaos-{self.seed}-"):
            number, flow = row.id.split("-")[2:]
            may = flows.endings(flow, int(number))
        else:
            return None
        ended = _ending(row)
        if ended in may:
            return None
        return (
            f"is {_description(ended)}, but should be {' or '.join(map(_description, may))}: "
            f"{row.reason or ''} {row.error or ''}"
        )


def _ending(row: RunRow) -> flows.Ending:
    """Return how the run ended, in the workload's terms."""
    value = json.loads(row.value) if row.value is not None and row.workflow != ITEM else None
    error = json.loads(row.error)["type"].rpartition(":")[2] if row.error is not None else None
    return flows.Ending(row.status, value, error)


def _description(ending: flows.Ending) -> str:
    with_what = "" if ending.value is None else f" with {ending.value}"
    return f"{ending.status}{with_what}" + ("" if ending.error is None else f" by {ending.error}")


def arguments(text: str) -> Any:
    """Parse --args: a JSON list, or an object of arguments by name. Raise ValueError otherwise."""
    found = json.loads(text)
    if not isinstance(found, (list, dict)):
        # The text is wrong, not a type.
        raise ValueError(  # noqa: TRY004
            "it must be a JSON list, or an object of arguments by name"
        )
    return found


def _filled(value: Any, number: int) -> Any:
    """Replace `{n}` with the number in every string of the value."""
    if isinstance(value, str):
        return value.replace("{n}", str(number))
    if isinstance(value, dict):
        return {key: _filled(one, number) for key, one in value.items()}
    return [_filled(one, number) for one in value] if isinstance(value, list) else value
