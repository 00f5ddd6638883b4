"""Define budgets: how much a run with its children, a session or a key may spend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Literal, Self

from outlast.api.definition_checks import NAME_LENGTH_MAX
from outlast.codec.cost import NOTHING, Cost
from outlast.codec.identifiers import check_id, check_name
from outlast.engine.budget_queue import BudgetQueue, Reservation
from outlast.engine.budget_state import Verdict, hold_id
from outlast.engine.budget_store import BudgetId
from outlast.engine.budgets import limits_of
from outlast.engine.execution_services import services_of
from outlast.errors import BudgetExhausted, NotInRun, SettingsError, StoreError, Unrecordable
from outlast.execution.progress import body_of
from outlast.execution.release import mark_exhausted, unmark_exhausted
from outlast.execution.step_execution import StepExecution
from outlast.execution.step_pauses import may_postpone, postpone, postpone_thread
from outlast.execution.step_uses import (
    OPEN_USES,
    OpenUse,
    Postponement,
    Root,
    begin_block,
    end_block,
)
from outlast.execution.time_limits import suspended_limits

if TYPE_CHECKING:
    from outlast.store.protocol import Store
    from outlast.store.rows import RunRow

HOLD_SECONDS = 5.0
"""How long a use waits in its step for others to settle, before its step is postponed."""
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.25, 5.0
"""How often a use that waits reads the budget."""
POSTPONED_SECONDS = 10.0

log = logging.getLogger("outlast")


class Budget:
    """What a run with its children, a session or a key may spend. Create it with `budget(...)`."""

    def __init__(
        self, name: str, limits: Mapping[str, Decimal], per: str, session: str | None
    ) -> None:
        self._name, self._limits, self._per, self._session = name, limits, per, session

    @property
    def name(self) -> str:
        """Return the budget's name."""
        return self._name

    def use(self, **amounts: float | Decimal) -> BudgetUse:
        """Return a block that reserves what it may spend: `async with spend.use(usd=0.05):`.

        Give at least one amount, by the names of the limits. In sync code, write `with`. Raise
        SettingsError if a limit does not exist, or if an amount is not a number of at least 0.
        """
        reserved = self._checked(amounts, "use")
        if not reserved:
            raise SettingsError(
                f"a use of budget {self._name!r} reserves nothing. Give the most that it may "
                "spend, such as use(usd=0.05)."
            )
        return BudgetUse(self, reserved)

    def _checked(self, amounts: Mapping[str, float | Decimal], call: str) -> Cost:
        for name in amounts:
            if name not in self._limits:
                known = ", ".join(self._limits)
                raise SettingsError(f"budget {self._name!r} has no limit {name!r}, only: {known}.")
        try:
            return Cost.of(amounts, call)
        except Unrecordable as error:
            raise SettingsError(f"budget {self._name!r}: {error}") from None

    def _of(self, root: Root) -> BudgetId:
        """Return which budget it is for a run with this root."""
        if self._session is not None:
            return BudgetId(self._name, "session", self._session)
        if self._per == "run":
            return BudgetId(self._name, "run", root.id, root.seed)
        if root.key is None:
            raise SettingsError(
                f"budget {self._name!r} is per key, and run {root.id!r} has no key. Submit it with "
                "key=…"
            )
        return BudgetId(self._name, "key", root.key)

    def __repr__(self) -> str:
        limits = ", ".join(f"{name}={limit}" for name, limit in self._limits.items())
        return f"<budget {self._name!r} {limits}>"


class BudgetUse(OpenUse):
    """One use of a budget, as a context manager. It can be entered once."""

    def __init__(self, budget: Budget, amounts: Cost) -> None:
        self._budget, self._amounts = budget, amounts
        self._actual: dict[str, Decimal] = {}
        self._reported = NOTHING
        self._body: StepExecution | None = None
        self._queue: BudgetQueue | None = None
        self._reservation: Reservation | None = None

    def actual(self, **amounts: float | Decimal) -> None:
        """Set how much was really spent: `used.actual(usd=0.018)`.

        It replaces what was reserved when the block is left. For amounts that are not named, what
        the block reported with `current().cost()` counts, or else what was reserved.
        """
        checked = self._budget._checked(amounts, "actual")
        self._actual |= {name: checked.get(name) for name in amounts}

    def _cost_reported(self, cost: Cost) -> None:
        self._reported += cost

    async def __aenter__(self) -> Self:
        body = self._enter()
        if asyncio.get_running_loop() is not body.execution.host:
            body.outer.leave_use(self)
            raise NotInRun("`async with` on a budget is for an async step. Here, write `with`.")
        try:
            await self._reserve(body, in_thread=False)
        except BaseException:
            body.outer.leave_use(self)
            raise
        begin_block(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        end_block(self)
        await self._settle(kind)

    def __enter__(self) -> Self:
        if asyncio._get_running_loop() is not None:
            raise NotInRun("a budget was entered with `with` on an event loop. Use `async with`.")
        body = self._enter()
        waits = self._reserve_for_thread(body, OPEN_USES.get())
        postponement = asyncio.run_coroutine_threadsafe(waits, body.execution.host).result()
        if postponement is not None:
            raise postpone_thread(body, postponement)
        begin_block(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        end_block(self)
        assert self._body is not None
        host = self._body.execution.host
        asyncio.run_coroutine_threadsafe(self._settle(kind), host).result()

    # -- entering

    def _enter(self) -> StepExecution:
        if self._body is not None:
            raise NotInRun("a use of a budget can be entered once. Call use() for each block.")
        body = self._body = body_of("budget.use")
        body.execution.check_active()
        body.outer.enter_use(self)
        return body

    async def _reserve_for_thread(
        self, body: StepExecution, around: tuple[OpenUse, ...]
    ) -> Postponement | None:
        OPEN_USES.set(around)
        try:
            if not body.outer.threads:
                return await self._reserve(body, in_thread=True)
            with body.execution.services.steps.pool.waiting():
                return await self._reserve(body, in_thread=True)
        except BaseException:
            body.outer.leave_use(self)
            raise

    async def _reserve(self, body: StepExecution, *, in_thread: bool) -> Postponement | None:
        """Wait until the amounts are reserved.

        If the body must end first, end it, or return why if a thread executes it.
        """
        queue, use = await self._prepare(body)
        shutdown = body.execution.services.shutdown
        host = body.execution.host
        hold_until, pause = host.time() + HOLD_SECONDS, PAUSE_SECONDS_MIN
        while True:
            verdict = await queue.reserve(use)
            try:
                body.execution.check_active()
            except BaseException:
                queue.settle(use.id, NOTHING)
                raise
            if verdict is Verdict.GRANTED:
                return None
            ending = None
            if verdict is Verdict.EXHAUSTED:
                # A use that waits asks again.
                queue.forget(use)
                if body.outer.is_effect:
                    raise BudgetExhausted(self._budget.name, use.question)
                if in_thread or may_postpone(body):
                    ending = self._until_raised(body, queue, use)
                else:
                    await self._wait_here(body, queue, use)
                    continue
            elif (host.time() >= hold_until or shutdown.begun) and may_postpone(body):
                ending = self._until_later(body)
            if ending is None:
                await self._wait_for_others(body, queue, pause)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
            elif in_thread:
                body.outer.leave_use(self)
                return ending
            else:
                await postpone(body, ending)

    async def _wait_for_others(
        self, body: StepExecution, queue: BudgetQueue, seconds: float
    ) -> None:
        """Wait until another use of this process has settled, but at most this many seconds."""
        if body.outer.is_effect:
            await queue.wait_for_change(seconds)
            return
        # A use that waits for a person may hold what this one needs. So this one does not keep
        # the run from being parked.
        body.outer.block_use(self, OPEN_USES.get())
        try:
            await queue.wait_for_change(seconds)
        finally:
            body.outer.unblock_use(self)

    async def _prepare(self, body: StepExecution) -> tuple[BudgetQueue, Reservation]:
        """Find the budget, and prepare a reservation under an id of its own."""
        execution = body.execution
        services = services_of(execution)
        used = execution.steps.budgets
        if used.root is None:
            backend = services.store.backend
            used.note_root(await services.store.read(_root_of, backend, execution.row))
        assert used.root is not None
        budgets = services.find_budgets()
        queue = self._queue = budgets.get(self._budget._of(used.root))
        used.add(queue.budget.id, queue)
        use = self._reservation = Reservation(
            hold_id(execution.id, execution.fence, budgets.next_number()),
            self._amounts,
            self._budget._limits,
            [
                one._reservation.id
                for one in OPEN_USES.get()
                if isinstance(one, BudgetUse) and one._reservation is not None
            ],
        )
        return queue, use

    def _until_later(self, body: StepExecution) -> Postponement:
        until = body.execution.clock.now() + POSTPONED_SECONDS
        return Postponement(f"budget {self._budget.name}", until)

    def _until_raised(
        self, body: StepExecution, queue: BudgetQueue, use: Reservation
    ) -> Postponement:
        """Return how the body ends until the budget is raised. Its run is parked if possible."""
        return Postponement(
            f"budget {self._budget.name}, which is exhausted",
            body.execution.clock.now(),
            wait=partial(self._wait, body, queue, use),
        )

    async def _wait_here(self, body: StepExecution, queue: BudgetQueue, use: Reservation) -> None:
        """Wait within the body until the budget is raised, without using up its time-outs.

        Its run is parked once every use of the step waits.
        """
        body.outer.block_use(self, OPEN_USES.get())
        try:
            with suspended_limits():
                await self._wait(body, queue, use)
        finally:
            body.outer.unblock_use(self)

    async def _wait(self, body: StepExecution, queue: BudgetQueue, use: Reservation) -> None:
        """Return when the budget is no longer exhausted. The run may be parked before that."""
        try:
            if await queue.check(use) is not Verdict.EXHAUSTED:
                return
            await self._wait_for_raise(body, queue, use)
        finally:
            queue.forget(use)

    async def _wait_for_raise(
        self, body: StepExecution, queue: BudgetQueue, use: Reservation
    ) -> None:
        execution = body.execution
        command = (
            f"`outlast decide {quote(execution.id)} {quote('budget:' + self._budget.name)} "
            f"{' '.join(f'--limit {name}=AMOUNT' for name in use.lacks)}`"
        )
        question = f"{queue.budget.id}: {use.question}. Run {command} to raise it."
        # From here on the run may be parked, because its question is in the store.
        mark_exhausted(execution, use.id, question)
        try:
            verdict = Verdict.EXHAUSTED
            while verdict is Verdict.EXHAUSTED:
                await queue.wait_for_change(PAUSE_SECONDS_MAX)
                verdict = await queue.check(use)
        finally:
            unmark_exhausted(execution, use.id)

    # -- leaving

    async def _settle(self, kind: type[BaseException] | None) -> None:
        """Count what was spent, and wait until that is written, unless the step is being stopped.

        So the reservation of a step that has ended is never taken for that of a dead process.
        """
        assert self._body is not None
        assert self._queue is not None
        assert self._reservation is not None
        if kind is GeneratorExit:
            # The loop is gone. What was reserved counts.
            return
        written = self._queue.settle(self._reservation.id, self._spent(failed=kind is not None))
        self._body.outer.leave_use(self)
        if kind is not None and not issubclass(kind, Exception):
            return
        try:
            await written
        except StoreError as error:
            log.warning(
                "What run %s has spent of budget %s is not written yet: %s. If this process ends "
                "before it is, what was reserved counts.",
                self._body.execution.id,
                self._budget.name,
                error,
                extra=self._body.execution.log_fields(self._body.outer.key),
            )

    def _spent(self, *, failed: bool) -> Cost:
        """Return what counts: what was reported, or else what was reserved.

        A block that failed may have spent what it reserved, without reporting it.
        """
        spent = {}
        for name in self._budget._limits:
            reported, reserved = self._reported.get(name), self._amounts.get(name)
            if name in self._actual:
                spent[name] = self._actual[name]
            elif failed:
                spent[name] = max(reported, reserved)
            else:
                spent[name] = reported or reserved
        return Cost({name: amount for name, amount in spent.items() if amount})


def _root_of(store: Store, row: RunRow) -> Root:
    """Return the run at the top of a run and its parents. Its row may be pruned."""
    while row.parent is not None:
        parent = store.run(row.parent)
        if parent is None:
            return Root(row.parent, "", None)
        row = parent
    return Root(row.id, row.seed, row.key)


def budget(
    name: str,
    *,
    per: Literal["run", "key"] = "run",
    session: str | None = None,
    **limits: float | Decimal,
) -> Budget:
    """Define a budget: `budget("answer", usd=5, tokens=200_000)`.

        spend = budget("answer", usd=5)

        @step
        async def ask(prompt: str) -> str:
            async with spend.use(usd=0.05) as used:
                answer = await model(prompt)
                used.actual(usd=answer.usd)
            return answer.text

    Each run has its own budget, which it shares with its children. With `per="key"`, all runs
    submitted with the same `key` share one. With `session="chat-1"`, all runs that use that
    session share one. What a block may spend is reserved before it begins, and settled when it is
    left. If nothing is left, the run is parked until a person raises the budget: see
    `outlast decide`. Use it in the bodies of steps. Raise SettingsError for invalid limits.
    """
    check_name(name, NAME_LENGTH_MAX, "budget name")
    if per not in ("run", "key"):
        raise SettingsError(f"budget {name!r}: per={per!r} must be 'run' or 'key'.")
    if session is not None:
        check_id(session, NAME_LENGTH_MAX, "session id")
        if per != "run":
            raise SettingsError(f"budget {name!r} is per key or of a session, not both.")
    return Budget(name, limits_of(limits, f"budget {name!r}: budget"), per, session)
