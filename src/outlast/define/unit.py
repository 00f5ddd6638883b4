"""`unit`: a part of the work that a drain does not cut in two."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from outlast.define.checks import NAME_LENGTH_MAX
from outlast.define.inside import _life
from outlast.errors import Diverged, Draining, Evicted, NotInRun, OutlastError
from outlast.replay.bodies import BODY
from outlast.replay.unit import UNIT
from outlast.values.names import check_name

if TYPE_CHECKING:
    from outlast.app.house import House
    from outlast.replay.life import Life

_counting = threading.Lock()


class Unit:
    """A context manager, for `async with` and `with`. A drain waits until it is left, as long as there is time, and inside it
    new steps and items go on; none begins in a drain. It is committed when its block ends, rolled back when an exception leaves the block; a run that leaves
    this process in the middle of it does neither."""

    def __init__(self, name: str, house: Callable[[], House] | None = None) -> None:
        self.name = check_name(name, NAME_LENGTH_MAX, "unit name")
        self._find_house = house
        self._house: House | None = None
        self._life: Life | None = None
        """The run that it is part of, if it is."""
        self._token: object = None
        self._holds = False
        """It holds back the drain of its run."""
        self._outer: object = None

    def __enter__(self) -> Self:
        if self._house is not None:
            raise OutlastError(f"unit {self.name!r} is entered already: make another one.")
        workflow, body = _life(), BODY.get()
        self._life = workflow or (body.life if body is not None else None)
        if self._life is not None:
            house = self._life.house
        elif self._find_house is not None:
            house = self._find_house()
        else:
            raise _not_in_run()
        if self._life is None and house.draining and UNIT.get() is None:
            raise Draining(f"this process is on its way out: unit {self.name!r} is not begun.")
        if workflow is not None:
            workflow.check()
            self._on_the_run_loop(workflow, self._enter_run)
        else:
            self._token = house.occupied.enter("unit", self.name)
            self._set()
        self._house = house
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        house, life, self._house = self._house, self._life, None
        if house is None:
            return
        if self._token is None:
            assert life is not None
            if life.over is None:
                self._on_the_run_loop(life, self._leave_run)
        else:
            house.occupied.leave(self._token)
            self._token = None
            self._unset()
        left = isinstance(error, (Evicted, Diverged, GeneratorExit)) or (
            life is not None and life.over is not None
        )
        replayed = _life() is not None and life is not None and life.replaying
        if left or replayed:
            return
        with _counting:
            if error is None:
                house.units.committed += 1
            else:
                house.units.rolled_back += 1

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _set(self) -> None:
        self._outer = UNIT.get()
        UNIT.set(self)

    def _unset(self) -> None:
        UNIT.set(self._outer)

    def _enter_run(self) -> None:
        assert self._life is not None
        if not self._life._may_start(UNIT.get()):
            return  # too late: its first step waits for another life, and the whole unit with it
        self._life.units += 1
        self._holds = True
        self._set()

    def _leave_run(self) -> None:
        assert self._life is not None
        if not self._holds:
            return
        self._holds = False
        self._life.units = max(0, self._life.units - 1)  # a drain whose time is up has set it to 0
        self._unset()

    def _on_the_run_loop(self, life: Life, action: Callable[[], None]) -> None:
        """A sync workflow's steps are called by the run's main task: it must be in the unit too."""
        if life.thread is None:
            action()
            return

        async def act() -> None:
            action()

        life.thread.call(act)

    def __repr__(self) -> str:
        return f"<unit {self.name!r}>"


def unit(name: str) -> Unit:
    """In a workflow or a step: a part of it that a drain does not cut in two, as `async with unit("order"):` or `with`.

    A drain waits for it, as long as there is time: inside it new steps start. An exception that leaves it rolls it back.
    Outside a run: `app.unit(name)`.
    """
    if _life() is None and BODY.get() is None:
        raise _not_in_run()
    return Unit(name)


def _not_in_run() -> NotInRun:
    return NotInRun(
        "unit() is for the code of a workflow or a step. Elsewhere: `async with app.unit(name):`, or `with`."
    )
