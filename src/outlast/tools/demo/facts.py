"""Read the facts from the store and the two servers, once all workers are gone.

The scenario itself reports only when each signal was sent, the workers' exit codes, and which
worker it saw with which execution of a run (`ScenarioResult`).
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from outlast.engine.info import EffectInfo
from outlast.execution.journal import Journal
from outlast.execution.run_cost import RunCost
from outlast.store.address import store_at
from outlast.store.protocol import Store, whole_journal
from outlast.store.rows import DrainRow, Entry, RunRow
from outlast.tools.demo.library import CUT, STOPPED, TOPICS
from outlast.tools.demo.model import Answer, Call
from outlast.tools.demo.outbox import Message
from outlast.tools.demo.scenario import ScenarioResult


class RunFacts(NamedTuple):
    """A run, as the store has it."""

    row: RunRow
    entries: tuple[Entry, ...]
    effects: tuple[EffectInfo, ...]
    saved: int
    """Tokens."""

    @property
    def value(self) -> str | None:
        found: str | None = json.loads(self.row.value) if self.row.value is not None else None
        return found

    @property
    def steps(self) -> int:
        """Return how many steps and effects ended."""
        return sum(one.kind == "step" for one in self.entries)


@dataclass
class Facts:
    result: ScenarioResult
    runs: dict[str, RunFacts]
    drains: dict[str, DrainRow]
    """By worker name."""
    messages: tuple[Message, ...]

    @property
    def repeated(self) -> dict[Call, int]:
        """Return requests that came more than once: steps whose body began again."""
        return {
            call: count for call, count in Counter(self.result.model.calls).items() if count > 1
        }

    @property
    def steps(self) -> int:
        return sum(run.steps for run in self.runs.values())

    @property
    def saved(self) -> int:
        """Return the tokens of steps that were on record when a run lost its worker."""
        return sum(run.saved for run in self.runs.values())

    @property
    def arrived(self) -> int:
        """Return how many tokens of the interrupted answer had arrived at the kill."""
        return self._answers[0].sent if self._answers else 0

    @property
    def kept(self) -> int:
        """Return how many of these were not requested again."""
        return self._answers[1].first if len(self._answers) > 1 else 0

    @property
    def one_answer(self) -> bool:
        """Return whether the whole answer is of one generation."""
        return len({one.id for one in self._answers}) == 1

    @property
    def duplicates(self) -> dict[tuple[str, str], int]:
        """Return messages that came more than once, by recipient and text."""
        count = Counter((message.to, message.text) for message in self.messages)
        return {message: times for message, times in count.items() if times > 1}

    @property
    def tool_call(self) -> Entry | None:
        """Return the tool call that was in flight when the signal came."""
        last = len(TOPICS[STOPPED].finds)
        entries = self.runs[STOPPED].entries if STOPPED in self.runs else ()
        return next(
            (one for one in entries if one.kind == "step" and one.key == f"search#{last}"), None
        )

    @property
    def _answers(self) -> list[Answer]:
        return [one for one in self.result.model.answers if one.topic == CUT]


def facts_of(result: ScenarioResult) -> Facts:
    store = store_at(result.address)
    store.open()
    with closing(store):
        runs = {
            topic: _run_facts(store, row)
            for topic in TOPICS
            if (row := store.run(topic)) is not None
        }
        return Facts(result, runs, _drains(store, result), result.outbox.messages)


def _run_facts(store: Store, row: RunRow) -> RunFacts:
    entries = tuple(whole_journal(store, row.pk))
    journal = Journal(entries)
    saved = RunCost(entries).saved.document().get("tokens", 0)
    return RunFacts(row, entries, tuple(EffectInfo.of(journal.effect_log)), int(saved))


def _drains(store: Store, result: ScenarioResult) -> dict[str, DrainRow]:
    return {result.pids[row.pid]: row for row in store.drains() if row.pid in result.pids}
