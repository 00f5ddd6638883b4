"""What is so, read from the store and from the two servers once everybody is gone. The play itself says only when the blows fell, what the workers exited
with, and which of them it saw with which life of a run (`Played`)."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from outlast.api.info import EffectInfo
from outlast.execution.journal import Journal
from outlast.execution.run_cost import RunCost
from outlast.store.address import store_at
from outlast.store.protocol import Store, whole_journal
from outlast.store.rows import DrainRow, Entry, RunRow
from outlast.tools.demo.library import TOPICS
from outlast.tools.demo.model import Answer, Call
from outlast.tools.demo.outbox import Message
from outlast.tools.demo.scenario import CUT, STOPPED, ScenarioResult


class RunFacts(NamedTuple):
    """A run, as the store has it."""

    row: RunRow
    entries: tuple[Entry, ...]
    effects: tuple[EffectInfo, ...]
    saved: int
    """Tokens."""

    @property
    def result(self) -> str | None:
        found: str | None = json.loads(self.row.value) if self.row.value is not None else None
        return found

    @property
    def steps(self) -> int:
        """How many ended: steps and effects."""
        return sum(one.kind == "step" for one in self.entries)


@dataclass
class Facts:
    played: ScenarioResult
    runs: dict[str, RunFacts]
    drains: dict[str, DrainRow]
    """By the name of the worker."""
    messages: tuple[Message, ...]

    @property
    def again(self) -> dict[Call, int]:
        """Requests that came more than once: steps whose body was begun again."""
        return {
            call: count for call, count in Counter(self.played.model.calls).items() if count > 1
        }

    @property
    def steps(self) -> int:
        return sum(run.steps for run in self.runs.values())

    @property
    def saved(self) -> int:
        """Tokens of steps that were on record when a run lost its worker."""
        return sum(run.saved for run in self.runs.values())

    @property
    def arrived(self) -> int:
        """Tokens of the answer that was cut, when it was."""
        return self._answers[0].sent if self._answers else 0

    @property
    def kept(self) -> int:
        """How many of these were not asked for again."""
        return self._answers[1].first if len(self._answers) > 1 else 0

    @property
    def one_answer(self) -> bool:
        """Whether all of it is of one generation."""
        return len({one.id for one in self._answers}) == 1

    @property
    def twice(self) -> dict[tuple[str, str], int]:
        """Messages that came more than once, by whom they went to and what they say."""
        count = Counter((message.to, message.text) for message in self.messages)
        return {message: times for message, times in count.items() if times > 1}

    @property
    def tool_call(self) -> Entry | None:
        """The one that was under way when the signal came."""
        last = len(TOPICS[STOPPED].finds)
        entries = self.runs[STOPPED].entries if STOPPED in self.runs else ()
        return next(
            (one for one in entries if one.kind == "step" and one.key == f"search#{last}"), None
        )

    @property
    def _answers(self) -> list[Answer]:
        return [one for one in self.played.model.answers if one.topic == CUT]


def facts_of(played: ScenarioResult) -> Facts:
    store = store_at(played.address)
    store.open()
    with closing(store):
        runs = {
            topic: _run_facts(store, row)
            for topic in TOPICS
            if (row := store.run(topic)) is not None
        }
        return Facts(played, runs, _drains(store, played), played.outbox.messages)


def _run_facts(store: Store, row: RunRow) -> RunFacts:
    entries = tuple(whole_journal(store, row.pk))
    journal = Journal(entries)
    saved = RunCost(entries).saved.document().get("tokens", 0)
    return RunFacts(row, entries, tuple(EffectInfo.of(journal.effect_log)), int(saved))


def _drains(store: Store, played: ScenarioResult) -> dict[str, DrainRow]:
    return {played.pids[row.pid]: row for row in store.drains() if row.pid in played.pids}
