"""Interrupt the agent programs of tests/integrations, and judge the calls that they made.

`python PROGRAM STORE LOG` executes the run "r" to its end and prints the result. Each model call and
each act appends a line to LOG when it begins: the call, and the key of an effect after a tab. Then it
prints the line after "call ".
"""

import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Self, TypeAlias

from support.processes import STOPPING, Program, clean_environment

Plan: TypeAlias = Sequence[Sequence[Sequence[str]]]
"""The calls of an agent: turns one after the other, the chains of a turn at once, the calls of a
chain one after the other. Each call has a name of its own."""
Lives: TypeAlias = Sequence[Sequence[str]]
"""The lines that each life of an agent wrote."""


def call_of(line: str) -> str:
    """Return the call of a line, without the key of an effect."""
    return line.partition("\t")[0]


def calls_of(plan: Plan) -> list[str]:
    """Return all calls of a plan."""
    return [call for turn in plan for chain in turn for call in chain]


def recorded(plan: Plan, made: Iterable[str]) -> set[str]:
    """Return the calls whose results were needed for the calls that were made."""
    made = set(made)
    found: set[str] = set()
    earlier: list[str] = []
    for turn in plan:
        if made.intersection(call for chain in turn for call in chain):
            found.update(earlier)
        for chain in turn:
            last = max((at for at, call in enumerate(chain) if call in made), default=0)
            found.update(chain[:last])
            earlier += chain
    return found


@dataclass(frozen=True)
class AgentProgram:
    """An agent that processes execute one after the other."""

    file: Path
    plan: Plan
    result: str
    """What it prints at the end."""
    arguments: Sequence[object] = ()
    """What follows LOG on its command line."""

    @classmethod
    def at(cls, file: Path, *arguments: object) -> Self:
        """Return the program in a file, with the PLAN and the RESULT that it states."""
        if str(file.parent) not in sys.path:
            sys.path.insert(0, str(file.parent))
        # Imported as its tests import it: its workflows and effects must not be defined twice.
        module = import_module(file.stem)
        return cls(file, module.PLAN, module.RESULT, arguments)

    def interrupted(
        self,
        place: str,
        folder: Path,
        number: signal.Signals,
        calls: Sequence[int],
        pythons: Sequence[str] = (sys.executable,),
    ) -> list[list[str]]:
        """Interrupt each life in one of its calls, then let one finish. Return their lines.

        `calls` has the number of that call for each life. The lives use the interpreters in turn.
        """
        log = folder / "calls"
        log.touch()
        ends = [0]
        python = cycle(pythons)
        for call in calls:
            stopping = (STOPPING, "^call ", call)
            drains = number == signal.SIGTERM
            with self._start(next(python), place, log, stopping, drains=drains) as program:
                program.wait_until_stopped()
                program.send_signal(number)
                program.resume()
                program.wait()
            ends.append(len(_lines(log)))
        with self._start(next(python), place, log) as program:
            program.wait_for_line(self.result)
            assert program.wait() == 0, program.describe()
        made = _lines(log)
        return [made[start:end] for start, end in zip(ends, [*ends[1:], len(made)], strict=True)]

    def _start(
        self,
        python: str,
        place: str,
        log: Path,
        stopping: Sequence[object] = (),
        *,
        drains: bool = False,
    ) -> Program:
        # After a kill in an act, the next life waits until the act cannot be in flight any more.
        env = clean_environment(
            OUTLAST_EFFECT_MARGIN="0.2", **({"AWAIT_DRAIN": "1"} if drains else {})
        )
        options = ("-W", "error", "-u")
        command = [python, *options, *stopping, self.file, place, log, *self.arguments]
        return Program(command, log.parent, env=env, fork=python == sys.executable)

    def check_once(self, lives: Lives) -> None:
        """Fail unless each call was made once."""
        made = Counter(call_of(line) for life in lives for line in life)
        assert made == Counter(calls_of(self.plan)), lives

    def check_drains(self, lives: Lives, calls: Sequence[int]) -> None:
        """Fail unless each call was made once, and each drain let only calls in flight end.

        `calls` has the number of the call in which each life got the signal. After it, only chains
        that run at the same time may make a call, and only the first one of theirs in this life.
        """
        self.check_once(lives)
        for life, number in zip(lives, calls, strict=False):
            made = [call_of(line) for line in life]
            turn = next(turn for turn in self.plan if made[number - 1] in calls_of([turn]))
            late = made[number:]
            assert set(late) <= set(calls_of([turn])), f"a drain started {late} in {lives}"
            for chain in turn:
                begun = [call for call in made if call in chain]
                assert not set(begun[1:]) & set(late), f"a drain started {begun[1:]} in {lives}"

    def check_kills(self, lives: Lives) -> None:
        """Fail if a call was left out, or repeated although it was not in flight at a kill."""
        before: set[str] = set()
        for life in lives:
            made = [call_of(line) for line in life]
            assert len(made) == len(set(made)), f"repeated in one life: {lives}"
            again = recorded(self.plan, before).intersection(made)
            assert not again, f"repeated after a kill: {again} in {lives}"
            before.update(made)
        assert before == set(calls_of(self.plan)), lives
        keys = {tuple(line.split("\t")) for life in lives for line in life if "\t" in line}
        acts = Counter(call for call, _ in keys)
        assert set(acts.values()) == {1}, f"an act has two keys: {keys}"


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines()
