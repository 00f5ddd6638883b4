"""Read and change the state of budgets in the store, by compare-and-set.

A budget is a session in the space BUDGETS. What a run asks a person is kept in a session of that
run too, in the space QUESTIONS, so that a reader of the run finds it. One command changes both.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from typing import NamedTuple

from outlast.codec.cost import plain_amount
from outlast.codec.identifiers import escape_name, unescape_name
from outlast.engine.budget_state import Ask, BudgetState, Limits
from outlast.engine.store_client import StoreClient
from outlast.store.commands import Refused, UpdateSession, UpdateSessions
from outlast.store.protocol import Store

BUDGETS = "budgets"
"""The session space of budgets."""
QUESTIONS = "budget-questions"
"""The session space of what runs ask. A session has the id of its run, and a field for each budget
that the run waits for."""
RAISED = "budgets-raised"
"""The session space of budgets that were raised while runs waited for them. A worker resumes these
runs, in case the process that raised the budget has died."""
STATE = "state"
DAY = 86_400.0
TTL = 90 * DAY
ASKED_TTL = 366 * DAY
"""For how long a budget is kept that a run waits for."""
GONE_SECONDS = 0.001

log = logging.getLogger("outlast")


class BudgetId(NamedTuple):
    """Which budget it is: its name, and the run, key or session that it belongs to."""

    name: str
    kind: str
    """"run", "key" or "session"."""
    of: str
    """The id of the run or session, or the key."""
    seed: str = ""
    """The seed of the run."""

    @property
    def id(self) -> str:
        """Return the id of its session. Different budgets have different ids."""
        return f"{self.kind}:{self.of}/{escape_name(self.name)}"


class Found(NamedTuple):
    """The state of a budget, and the version of its session."""

    version: int
    state: BudgetState
    asks: dict[str, Ask]
    """What runs ask, as the store has it."""
    was_answered: bool
    """Whether the store has runs that are to be resumed."""

    @classmethod
    def of(cls, version: int, state: BudgetState) -> Found:
        """Return a state as it was read or written."""
        return cls(version, state, dict(state.asks), bool(state.answered))


def parts_of(id: str) -> tuple[str, str]:
    """Return the kind of a budget, and the run, key or session that it belongs to."""
    kind, _, rest = id.partition(":")
    return kind, rest.rpartition("/")[0]


async def read_budget(client: StoreClient, budget: BudgetId, limits: Limits) -> Found:
    """Read the state of a budget. If it is damaged, count everything as spent.

    The state of an earlier run with the same id counts as none. A process that was frozen may use
    the budget of a run that was pruned and submitted again since: it gets that of the later run.
    """
    row = await client.read(client.store.session, budget.id, BUDGETS)
    new = BudgetState(budget.name, limits, seed=budget.seed, epoch=int(client.store.now()))
    if row is None:
        return Found.of(0, new)
    try:
        state = BudgetState.read(row.fields[STATE])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        log.error(
            "The state of budget %r in the store is damaged (%r). It counts as used up. Set its "
            "limit to continue.",
            budget.id,
            error,
        )
        state = BudgetState.used_up(budget.name, limits, seed=budget.seed, epoch=new.epoch)
    if budget.seed and state.seed != budget.seed:
        run = await client.read(client.store.run, budget.of)
        if run is None or run.seed != state.seed:
            state = new
    return Found.of(row.version, state)


async def change_budget(
    client: StoreClient, id: str, change: Callable[[BudgetState], object]
) -> BudgetState | None:
    """Apply a change to a budget, and repeat it if another process has written first.

    Return None if there is no budget.

    Raise ValueError, KeyError, TypeError or AttributeError if its state is damaged.
    """
    while True:
        row = await client.read(client.store.session, id, BUDGETS)
        if row is None:
            return None
        state = BudgetState.read(row.fields[STATE])
        found = Found.of(row.version, state)
        before = state.text()
        change(state)
        if state.text() == before or await write_budget(client, id, found) is not None:
            return state


async def write_budget(client: StoreClient, id: str, found: Found) -> int | None:
    """Write a changed state, with the questions of its runs. Return its version.

    Return None if another process has changed it since it was read.
    """
    state = found.state
    token = secrets.token_hex(8)
    changes = [
        UpdateSession(
            id,
            token,
            {STATE: state.text()},
            ttl=_ttl(id, state),
            version=found.version,
            space=BUDGETS,
        )
    ]
    for run in sorted({*found.asks, *state.asks}):
        if state.asks.get(run) != found.asks.get(run):
            asked = question(state, run) if run in state.asks else None
            changes.append(
                UpdateSession(run, token, {id: asked}, ttl=ASKED_TTL, space=QUESTIONS, extends=True)
            )
    if bool(state.answered) != found.was_answered:
        ttl = ASKED_TTL if state.answered else GONE_SECONDS
        changes.append(UpdateSession(id, token, {STATE: ""}, ttl=ttl, space=RAISED))
    if len(changes) == 1:
        answer = await client.writer.execute(changes[0])
    else:
        answer = await client.writer.execute(UpdateSessions(tuple(changes)))
    if isinstance(answer, Refused):
        return None
    return int(answer[0] if isinstance(answer, (list, tuple)) else answer)


def question(state: BudgetState, run: str) -> str:
    """Return what a person reads who is to raise the budget for this run."""
    ask = state.asks[run]
    return " and ".join(
        f"{plain_amount(state.spent.get(name), ',')} of {plain_amount(limit, ',')} {name} are "
        f"spent, and the next use reserves {plain_amount(ask.amounts.get(name), ',')}"
        for name, limit in state.limit_of.items()
        if name in state.lacks(ask.amounts)
    )


def questions_of(store: Store, run: str) -> dict[str, str]:
    """Return what a run asks, by the ids of the budgets."""
    row = store.session(run, QUESTIONS)
    return {} if row is None else row.fields


def budget_name(id: str) -> str:
    """Return the name of a budget from its id."""
    return unescape_name(id.rpartition("/")[2])


def matching(ids: Iterable[str], wanted: str) -> list[str]:
    """Return the budgets that a person may mean: by their id, or else by their name."""
    wanted = wanted.removeprefix("budget:")
    found = list(ids)
    return [id for id in found if id == wanted] or [id for id in found if budget_name(id) == wanted]


def _ttl(id: str, state: BudgetState) -> float | None:
    if parts_of(id)[0] == "key":
        return None
    return ASKED_TTL if state.asks else TTL
