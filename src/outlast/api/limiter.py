"""Define limiters: how much of a provider all workers together may use in a period."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from operator import index
from typing import TYPE_CHECKING, Any, Self

from outlast.api.definition_checks import NAME_LENGTH_MAX
from outlast.codec.identifiers import check_name
from outlast.codec.rates import Rate
from outlast.engine.execution_services import services_of
from outlast.engine.limiter_queue import Granted, LimiterQueue, Postponed
from outlast.errors import NotInRun, SettingsError
from outlast.execution.progress import body_of
from outlast.execution.step_execution import StepExecution
from outlast.execution.step_pauses import may_postpone, postpone, postpone_thread
from outlast.execution.step_uses import OpenUse, Postponement, begin_block, end_block

if TYPE_CHECKING:
    from outlast.engine.execution_services import EngineServices

REQUESTS = "requests"
"""The limit of this name counts 1 per use by default."""
HOLD_SECONDS = 5.0


class Limiter:
    """A limit on what all workers together use in a period. Create it with `limiter(...)`."""

    def __init__(
        self,
        name: str,
        rates: Mapping[str, Rate],
        hold: float,
        find: Callable[[], EngineServices] | None = None,
    ) -> None:
        self._name, self._rates, self._hold, self._find = name, rates, hold, find

    @property
    def name(self) -> str:
        """Return the limiter's name."""
        return self._name

    def use(self, **amounts: int) -> LimiterUse:
        """Return a block that begins once the limits allow it.

        Use it as `async with openai.use(tokens=1200):`. Give the amounts by the names of the
        limits. `requests` is 1 unless given, the others are 0. In sync code, write `with`. Raise
        SettingsError if a limit does not exist, or if an amount is above its limit, so that the
        block could never begin.
        """
        return LimiterUse(self, self._checked(amounts, REQUESTS))

    def _checked(self, amounts: Mapping[str, Any], default: str | None = None) -> dict[str, int]:
        found = {default: 1} if default in self._rates and default is not None else {}
        for name, amount in amounts.items():
            rate = self._rates.get(name)
            if rate is None:
                known = ", ".join(self._rates)
                raise SettingsError(f"limiter {self._name!r} has no limit {name!r}, only: {known}.")
            if isinstance(amount, bool) or not hasattr(amount, "__index__") or index(amount) < 0:
                raise SettingsError(
                    f"limiter {self._name!r} takes a whole number of {name}, not {amount!r}."
                )
            found[name] = index(amount)
        return found

    def _check_amounts(self, amounts: Mapping[str, int]) -> None:
        for name, amount in amounts.items():
            if amount > self._rates[name].limit:
                raise SettingsError(
                    f"limiter {self._name!r} allows {self._rates[name]} {name}, so a use of "
                    f"{amount:,} can never begin. Use less at a time, or raise the limit."
                )

    def __repr__(self) -> str:
        limits = ", ".join(f"{name}={rate}" for name, rate in self._rates.items())
        return f"<limiter {self._name!r} {limits}>"


class LimiterUse(OpenUse):
    """One use of a limiter, as a context manager. It can be entered once."""

    def __init__(self, limiter: Limiter, amounts: dict[str, int]) -> None:
        limiter._check_amounts(amounts)
        self._limiter, self._amounts = limiter, amounts
        self._actual: dict[str, int] = {}
        self._grant: Granted | None = None
        self._queue: LimiterQueue | None = None
        self._body: StepExecution | None = None

    def actual(self, **amounts: int) -> None:
        """Set how much was really used: `used.actual(tokens=873)`.

        It replaces what was reserved when the block is left. Amounts that are not named stay.
        """
        self._actual |= self._limiter._checked(amounts)

    async def __aenter__(self) -> Self:
        body = self._enter()
        if body is not None and asyncio.get_running_loop() is not body.execution.host:
            self._leave()
            raise NotInRun("`async with` on a limiter is for an async step. Here, write `with`.")
        try:
            answer = await self._reserve()
            if isinstance(answer, Postponed):
                assert body is not None
                await postpone(body, self._postponement(answer))
        except BaseException:
            self._leave()
            raise
        begin_block(self)
        return self

    async def __aexit__(self, *exc: object) -> None:
        end_block(self)
        self._settle()

    def __enter__(self) -> Self:
        if asyncio._get_running_loop() is not None:
            raise NotInRun("a limiter was entered with `with` on an event loop. Use `async with`.")
        body = self._enter()
        try:
            host = self._services(body).host
            future = asyncio.run_coroutine_threadsafe(self._reserve_for_thread(), host)
            answer = future.result()
            if isinstance(answer, Postponed):
                assert body is not None
                raise postpone_thread(body, self._postponement(answer))
        except BaseException:
            self._leave()
            raise
        begin_block(self)
        return self

    def __exit__(self, *exc: object) -> None:
        end_block(self)
        self._services(self._body).host.call_soon_threadsafe(self._settle)

    # -- entering and leaving

    def _postponement(self, answer: Postponed) -> Postponement:
        return Postponement(f"limiter {self._limiter.name}", answer.until)

    def _services(self, body: StepExecution | None) -> EngineServices:
        if self._limiter._find is not None:
            return self._limiter._find()
        assert body is not None
        return services_of(body.execution)

    def _enter(self) -> StepExecution | None:
        """Find the step and the queue. The step is None for a use outside of a run."""
        if self._queue is not None:
            raise NotInRun("a use of a limiter can be entered once. Call use() for each block.")
        body = None if self._limiter._find is not None else body_of("limiter.use")
        if body is not None:
            body.execution.check_active()
        limiters = self._services(body).find_limiters()
        self._queue = limiters.get(self._limiter.name, self._limiter._rates)
        if body is not None:
            body.outer.enter_use(self)
        self._body = body
        return body

    def _leave(self) -> None:
        if self._body is not None:
            self._body.outer.leave_use(self)

    def _settle(self) -> None:
        self._leave()
        assert self._queue is not None
        assert self._grant is not None
        changes = {
            name: amount - self._amounts.get(name, 0) for name, amount in self._actual.items()
        }
        if any(changes.values()):
            self._queue.settle(self._grant, changes)

    async def _reserve_for_thread(self) -> Granted | Postponed:
        body = self._body
        if body is None or not body.outer.threads:
            return await self._reserve()
        with body.execution.services.steps.pool.waiting():
            return await self._reserve()

    async def _reserve(self) -> Granted | Postponed:
        """Wait until the limits allow the use.

        A grant that arrives too late is released and replaced.
        """
        assert self._queue is not None
        body, hold = self._body, self._limiter._hold
        owner = self._owner()
        while True:
            answer = await self._queue.reserve(self._amounts, owner, hold)
            if isinstance(answer, Postponed):
                if body is not None and may_postpone(body):
                    return answer
                # The step has begun other uses in the meantime.
                hold = math.inf
            elif self._queue.is_late(answer):
                unused = {name: -amount for name, amount in self._amounts.items()}
                self._queue.settle(answer, unused)
            else:
                self._grant = answer
                return answer

    def _owner(self) -> str | None:
        """Return the name under which a postponed step finds its ticket. None if it may not be."""
        body = self._body
        if body is None or not may_postpone(body):
            return None
        number = body.uses.number(self._limiter.name)
        return f"{body.execution.id}\n{body.key}\n{number}"


def limiter(name: str, *, hold: float = HOLD_SECONDS, **rates: str) -> Limiter:
    """Define a limiter that all workers share: `limiter("openai", tokens="90000/1m")`.

        openai = limiter("openai", tokens="90000/1m", requests="500/1m")

        @step
        async def ask(prompt: str) -> str:
            async with openai.use(tokens=1200) as used:
                answer = await model(prompt)
                used.actual(tokens=answer.tokens)
            return answer.text

    Each limit is an amount per period (`ms`, `s`, `m`, `h`, `d`). Uses begin in the order in which
    they were asked for. If a use has to wait longer than `hold` seconds, its run is released and
    holds no slot: the step ends, and executes again from its start when the limits allow it. Use it
    in the bodies of steps. Elsewhere, use `app.limiter(...)`. Raise SettingsError for an invalid
    rate.
    """
    return make_limiter(name, hold, rates, NAME_LENGTH_MAX)


def make_limiter(
    name: str,
    hold: float,
    rates: Mapping[str, str],
    name_length_max: int,
    find: Callable[[], EngineServices] | None = None,
) -> Limiter:
    """Check the definition of a limiter and return it. `find` returns its services."""
    check_name(name, name_length_max, "limiter name")
    if not rates:
        raise SettingsError(
            f"limiter {name!r} has no limits. Give it some: limiter({name!r}, requests='500/1m')."
        )
    if not hold >= 0:
        raise SettingsError(f"limiter {name!r}: hold is {hold!r}. Give seconds, at least 0.")
    for unit in rates:
        check_name(unit, name_length_max, "name of a limit")
    parsed = {
        unit: Rate.parse(rate, f"limit {unit} of limiter {name!r}") for unit, rate in rates.items()
    }
    return Limiter(name, parsed, hold, find)
