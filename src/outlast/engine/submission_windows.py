"""Submit one run per window: the last call of a burst, or one of several repeats.

A window has a name: the given id, or the workflow and the key. A session, the pointer, says which
run the current window has. Every process submits under the id of that run, so the store decides
which of them comes first. See docs/architecture-windows.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote

from outlast.codec.identifiers import check_id
from outlast.engine.submission import conflict
from outlast.errors import AlreadySubmitted, SettingsError, StoreBroken
from outlast.store.commands import Cancel, Refused, Submit, Submitted, UpdateSession
from outlast.store.rows import ENDED, RunRow

if TYPE_CHECKING:
    from outlast.engine.store_client import StoreClient
    from outlast.engine.submission import Submissions

WINDOWS = "windows"
"""The session space of the pointers."""
POINTER = "pointer"
BURST_KEPT_SECONDS = 30 * 86_400.0
"""How long the pointer of a burst stays, unless it is used again. Its run may wait that long."""
WINDOW_KEPT_SECONDS = 86_400.0
"""How long a pointer stays after its window, for repeats."""
RENEW_SECONDS = 86_400.0
"""A pointer that was written longer ago is written again when it is used."""

RepeatPolicy = Literal["reject", "join", "replace"]


class OnRepeat(StrEnum):
    """What a repeat within a window does."""

    REJECT = "reject"
    """Raise AlreadySubmitted."""
    JOIN = "join"
    """Return the run that was submitted first."""
    REPLACE = "replace"
    """Take the place of that run. Cancel it if it has begun."""


@dataclass(frozen=True)
class Debounce:
    """Run the last call of a burst, `seconds` after it."""

    seconds: float
    most: float | None = None
    """How many seconds after its first call a burst runs at the latest."""


@dataclass(frozen=True)
class Window:
    """Accept one run in a number of seconds."""

    seconds: float
    on_repeat: OnRepeat = OnRepeat.REJECT


Policy = Debounce | Window


@dataclass(frozen=True)
class Pointer:
    """The current window of a name."""

    number: int
    """Its run's number: the milliseconds at which it was opened. It only grows."""
    first: float
    """When it was opened."""
    until: float | None
    """When it ends. None: when its run begins."""
    before: int | None = None
    """The number of the window before it."""


class SubmittedInWindow(NamedTuple):
    """The run that a submission has made or joined."""

    id: str
    seed: str
    outcome: Submitted


class _Current(NamedTuple):
    """A pointer as it was read or written."""

    pointer: Pointer
    version: int
    updated: float


def policy_of(
    *,
    debounce: float | None = None,
    debounce_max: float | None = None,
    window: float | None = None,
    on_repeat: str | None = None,
    id: str | None = None,
    key: str | None = None,
    delay: float = 0.0,
    on_conflict: str = "raise",
) -> Policy | None:
    """Return what the options of a submission ask for, or None for an ordinary one.

    Raise SettingsError for options that contradict each other.
    """
    if debounce is None and debounce_max is not None:
        raise SettingsError("debounce_max limits debounce=, which is missing.")
    if window is None and on_repeat is not None:
        raise SettingsError("on_repeat says what a repeat within window= does, which is missing.")
    if debounce is None and window is None:
        return None
    if debounce is not None and window is not None:
        raise SettingsError("debounce and window exclude each other: pass only one of them.")
    given = "window" if debounce is None else "debounce"
    if id is None and key is None:
        raise SettingsError(
            f"{given} needs an id or a key: calls of a workflow that have the same one belong "
            "together."
        )
    if on_conflict != "raise":
        raise SettingsError(f"on_conflict has no effect with {given}: leave it out.")
    if window is not None:
        if on_repeat not in (None, *OnRepeat):
            raise SettingsError(f'on_repeat={on_repeat!r} must be "reject", "join" or "replace".')
        return Window(_checked("window", window), OnRepeat(on_repeat or OnRepeat.REJECT))
    if delay:
        raise SettingsError("debounce sets the delay of the run: leave delay out.")
    assert debounce is not None
    most = None if debounce_max is None else _checked("debounce_max", debounce_max)
    if most is not None and most < debounce:
        raise SettingsError(f"debounce_max={most} must be at least debounce={debounce}.")
    return Debounce(_checked("debounce", debounce), most)


def _checked(what: str, seconds: float) -> float:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < math.inf:
        raise SettingsError(f"{what}={seconds!r} must be a number of seconds, more than 0.")
    return float(seconds)


def window_name(workflow: str, id: str | None, key: str | None, owner: str | None = None) -> str:
    """Return the name of a window: the id, or the workflow and the key.

    A caller that may see only its own runs is their `owner`, and has windows of its own.
    """
    name = f"{workflow}:{key}" if id is None else id
    return name if owner is None else f"{quote(owner, safe='')}/{name}"


def run_id(name: str, number: int) -> str:
    """Return the id of a window's run: its name, and when the window was opened, in UTC."""
    moment = datetime.fromtimestamp(number / 1000, UTC).replace(tzinfo=None)
    return f"{name}~{moment.isoformat(timespec='milliseconds')}Z"


class Windows:
    """Submit runs in windows."""

    def __init__(self, client: StoreClient, submissions: Submissions, id_length_max: int) -> None:
        self._client = client
        self._submissions = submissions
        self._id_length_max = id_length_max

    async def submit(
        self, command: Submit, policy: Policy, *, wait: float, token: str | None
    ) -> SubmittedInWindow:
        """Submit a run in the current window of its name, which is the id of the command.

        A repeat with the same `token` returns the same run as
        long as its window is the current one or the one before it. Raise AlreadySubmitted if the
        policy rejects it, Conflict if the id belongs to other work, and Backpressure.
        """
        name = command.id
        check_id(run_id(name, 0), self._id_length_max, "id of a run in a window")
        source = secrets.token_hex(16) if token is None else token
        while True:
            found = await self._current(name, policy)
            if found is None:
                continue
            pointer = found.pointer
            if token is not None and pointer.before is not None:
                earlier = run_id(name, pointer.before)
                row = await self._row(earlier)
                if row is not None and row.seed == _seed(token, earlier):
                    return SubmittedInWindow(earlier, row.seed, Submitted(row, new=False))
            id = run_id(name, pointer.number)
            seed = _seed(source, id)
            run = command._replace(
                id=id,
                # A repeat that comes before the first claim is recognised by the token.
                token=seed[:16],
                seed=seed,
                delay=_delay(policy, command, pointer, self._client.store.now()),
                replace=_replaces(policy),
            )
            [outcome] = await self._submissions.enqueue([run], wait)
            row = outcome.row
            if row is None or outcome.new or row.seed == seed:
                # It is queued, or it was and has begun since.
                return SubmittedInWindow(id, seed, outcome)
            _check_same_work(row, run)
            if not _replaces(policy):
                if isinstance(policy, Window) and policy.on_repeat is OnRepeat.JOIN:
                    return SubmittedInWindow(id, row.seed, outcome)
                until = pointer.first if pointer.until is None else pointer.until
                raise AlreadySubmitted(id, datetime.fromtimestamp(until, UTC))
            if isinstance(policy, Window) and row.status not in ENDED:
                # Before the next window: a process that dies here leaves no two runs.
                why = f"replaced by a later submission of {name}"
                await self._client.writer.execute(Cancel(id, why))
            await self._open(name, policy, found)

    async def _current(self, name: str, policy: Policy) -> _Current | None:
        """Return the pointer to the current window. Open one if there is none.

        Return None if another process has changed the pointer meanwhile.
        """
        found = await self._read(name)
        now = self._client.store.now()
        if found is None or await self._is_over(name, found.pointer, policy, now):
            return await self._open(name, policy, found)
        if now - found.updated > RENEW_SECONDS:
            return await self._write(name, policy, found.pointer, found.version)
        return found

    async def _is_over(self, name: str, pointer: Pointer, policy: Policy, now: float) -> bool:
        if isinstance(policy, Window):
            # A window of another policy has ended for this one.
            return pointer.until is None or now >= pointer.until
        if pointer.until is not None:
            return True
        if policy.most is None or now < pointer.first + policy.most:
            return False
        # Its run is late, or it was pruned: then the next one must not be due at once.
        return await self._row(run_id(name, pointer.number)) is None

    async def _open(self, name: str, policy: Policy, found: _Current | None) -> _Current | None:
        """Open the next window. Return None if another process has changed the pointer."""
        now = self._client.store.now()
        number, before = int(now * 1000), None
        if found is not None:
            before = found.pointer.number
            number = max(number, before + 1)
        until = now + policy.seconds if isinstance(policy, Window) else None
        pointer = Pointer(number, now, until, before)
        return await self._write(name, policy, pointer, 0 if found is None else found.version)

    async def _write(
        self, name: str, policy: Policy, pointer: Pointer, version: int
    ) -> _Current | None:
        """Write a pointer over this version.

        Return None if another process has changed it first.
        """
        if isinstance(policy, Window):
            ttl = WINDOW_KEPT_SECONDS + policy.seconds
        else:
            ttl = BURST_KEPT_SECONDS + (policy.most or policy.seconds)
        command = UpdateSession(
            name,
            secrets.token_hex(8),
            {POINTER: json.dumps(asdict(pointer))},
            ttl=ttl,
            version=version,
            space=WINDOWS,
        )
        written = await self._client.writer.execute(command)
        if isinstance(written, Refused):
            return None
        return _Current(pointer, written, self._client.store.now())

    async def _read(self, name: str) -> _Current | None:
        row = await self._client.read(self._client.store.session, name, WINDOWS)
        if row is None:
            return None
        try:
            pointer = Pointer(**json.loads(row.fields[POINTER]))
        except (KeyError, TypeError, ValueError) as error:
            raise StoreBroken(f"the window {name!r} is damaged in the store ({error!r}).") from None
        return _Current(pointer, row.version, row.updated)

    async def _row(self, id: str) -> RunRow | None:
        return await self._client.read(self._client.store.run, id)


def _replaces(policy: Policy) -> bool:
    return isinstance(policy, Debounce) or policy.on_repeat is OnRepeat.REPLACE


def _delay(policy: Policy, command: Submit, pointer: Pointer, now: float) -> float:
    """Return in how many seconds the run of a call is due."""
    if isinstance(policy, Window):
        return command.delay
    if policy.most is None:
        return policy.seconds
    return max(0.0, min(policy.seconds, pointer.first + policy.most - now))


def _seed(token: str, id: str) -> str:
    """Return the seed of a run. It stays with the run, so a repeat finds what it submitted."""
    return hashlib.sha256(f"{token}\0{id}".encode()).hexdigest()[:32]


def _check_same_work(row: RunRow, run: Submit) -> None:
    """Raise Conflict if the id of a window belongs to other work."""
    if row.workflow != run.workflow:
        raise conflict(run.id, row.workflow, row.args, run.workflow, run.args)
    waits = row.status == "queued" and row.lives == 0
    if waits and (row.queue, row.key) != (run.queue, run.key):
        there = f"{row.workflow} in queue {row.queue!r} with key {row.key!r}"
        here = f"{run.workflow} in queue {run.queue!r} with key {run.key!r}"
        raise conflict(run.id, there, "", here, "")
