"""Record what the model calls of a turn have cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outlast.api.context import current

INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
OUTPUT = "output_tokens"


@dataclass
class TurnUsage:
    """The tokens that the steps of a turn have recorded, as far as one program reported them.

    The SDK reports the usage of a turn at its end. Until then, each step records the usage of the
    responses that it got, so that a crash does not lose it. The last step records the rest.
    """

    _input: int = 0
    _output: int = 0
    _seen: set[str] = field(default_factory=set)

    def record_responses(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add the usage of new responses to the cost of the step that executes."""
        # A response is several entries. The last one has the final usage.
        found: dict[str, Mapping[str, Any]] = {}
        for entry in entries:
            message = entry.get("message")
            if entry.get("type") == "assistant" and isinstance(message, Mapping):
                usage = message.get("usage")
                if isinstance(usage, Mapping) and message.get("id") not in self._seen:
                    found[str(message.get("id"))] = usage
        self._seen.update(found)
        for usage in found.values():
            self._add(_sum(usage, INPUTS), _sum(usage, (OUTPUT,)))

    def record_result(self, result: Mapping[str, Any]) -> None:
        """Add what the SDK's result reports beyond the responses, and its price."""
        usage = result.get("usage") or {}
        self._add(
            max(0, _sum(usage, INPUTS) - self._input),
            max(0, _sum(usage, (OUTPUT,)) - self._output),
        )
        usd = result.get("total_cost_usd")
        if usd:
            current().cost(usd=usd)

    def _add(self, input: int, output: int) -> None:
        self._input += input
        self._output += output
        if input or output:
            current().cost(tokens=input + output, tokens_input=input, tokens_output=output)


def _sum(usage: Mapping[str, Any], names: Iterable[str]) -> int:
    return sum(usage.get(name) or 0 for name in names)
