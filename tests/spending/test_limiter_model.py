"""The state of a limiter against a plain model, over sequences of uses that nobody thought of."""

import math
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outlast.codec.rates import Rate
from outlast.engine.limiter_state import SLICES, LimiterState, margin_of

EXAMPLES = int(os.environ.get("OUTLAST_TEST_MODEL_EXAMPLES", "40"))
RATES = {"requests": Rate(3, 1.0), "tokens": Rate(100, 60.0)}
MARGIN = margin_of(1.0)
LONGEST = {
    name: rate.period * (1 + 1 / SLICES) + margin_of(rate.period) for name, rate in RATES.items()
}
"""For how long an amount counts at most: its period, the slice it is in, and the margin of a use."""
ROUNDING = 0.01
AMOUNTS = st.builds(
    lambda requests, tokens: {"requests": requests, "tokens": tokens},
    st.integers(1, 3),
    st.integers(1, 100),
)


class Use:
    """What the model knows of a use: what it reserved or used, and when it was let in."""

    def __init__(self, amounts: dict[str, int], at: float = 0.0) -> None:
        self.amounts = dict(amounts)
        self.at = at


class LimiterMachine(RuleBasedStateMachine):
    """One process that reserves, waits, gives up and settles, and writes the state each time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.state = LimiterState(RATES)
        self.granted: list[Use] = []
        self.lost: list[Use] = []
        """Reservations that were due and whose uses did not begin in time."""
        self.waiting: dict[int, Use] = {}
        """Uses by the numbers of their tickets, in the order of their arrival."""

    # -- what happens

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.1, 0.5, 1.0, 7.0, 61.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.look()

    @rule(amounts=AMOUNTS)
    def use(self, amounts: dict[str, int]) -> None:
        ticket = self.state.insert(amounts)
        self.waiting[ticket.number] = Use(amounts)
        self.look()

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 9))
    def give_up(self, which: int) -> None:
        number = list(self.waiting)[which % len(self.waiting)]
        del self.waiting[number]
        self.state.remove(number)
        self.look()

    @precondition(lambda self: self.granted)
    @rule(which=st.integers(0, 9), used=AMOUNTS)
    def settle(self, which: int, used: dict[str, int]) -> None:
        """A use says what it really used, which may be less or more than it reserved."""
        use = self.granted[which % len(self.granted)]
        changes = {name: used[name] - amount for name, amount in use.amounts.items()}
        self.state.settle(None, use.at, changes)
        use.amounts = dict(used)
        self.look()

    # -- the state as a process keeps it

    def look(self) -> None:
        """Let in what is due, as a process does that looks now, and write the state."""
        due = {one.number: one.at for one in self.state.tickets}
        self.state.expire(self.now)
        for number, use in self.waiting.items():
            if self.state.find(number) is None:
                # Nobody looked within the margin. What was reserved counts as if it was used, and
                # the use takes a new ticket under its old number.
                self.lost.append(Use(use.amounts, due[number]))
                self.state.insert(use.amounts, number)
        self.state.schedule(self.now)
        for number in list(self.waiting):
            ticket = self.state.find(number)
            assert ticket is not None
            if ticket.at <= self.now:
                use = self.waiting.pop(number)
                self.check_room(use, ticket.at)
                use.at = ticket.at
                self.state.count(ticket)
                self.granted.append(use)
        self.state = LimiterState.read(self.state.text(), RATES)

    def check_room(self, new: Use, at: float) -> None:
        """Fail if some period could see more than the limit.

        The new use begins at the earliest when it is let in, and another one began at the latest a
        margin after it was let in.
        """
        for name, rate in RATES.items():
            since = at - rate.period - margin_of(1.0)
            others = [one for one in self.granted if one.at > since]
            used = sum(one.amounts[name] for one in others)
            assert used + new.amounts[name] <= rate.limit, (name, used, new.amounts)

    @invariant()
    def text_can_be_read_again(self) -> None:
        text = self.state.text()
        assert LimiterState.read(text).text() == text

    @invariant()
    def waiting_uses_are_due_in_the_order_of_their_arrival(self) -> None:
        tickets = self.state.tickets
        assert [one.number for one in tickets] == list(self.waiting)
        assert [one.at for one in tickets] == sorted(one.at for one in tickets)
        assert all(one.at > self.now for one in tickets)

    @invariant()
    def no_use_waits_longer_than_the_model_says(self) -> None:
        """The model: amounts count for the longest time, and uses are let in one after another."""
        counted = {name: [] for name in RATES}
        for name, found in counted.items():
            over = [*self.granted, *self.lost]
            found += [(use.at + LONGEST[name], use.amounts[name]) for use in over]
        at = self.now
        for number, use in self.waiting.items():
            for name, rate in RATES.items():
                at = max(at, free_at(counted[name], rate.limit - use.amounts[name], at))
            for name, found in counted.items():
                found.append((at + LONGEST[name], use.amounts[name]))
            ticket = self.state.find(number)
            assert ticket is not None
            assert ticket.at <= at + ROUNDING, f"ticket {number} could be due at {at}"


def free_at(counted: list[tuple[float, int]], most: int, now: float) -> float:
    """Return the earliest time from `now` at which at most `most` counts."""
    for at in [now, *sorted(until for until, _ in counted if until > now)]:
        if sum(amount for until, amount in counted if until > at) <= most:
            return at
    return math.inf


LimiterMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    derandomize=bool(os.environ.get("CI")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestLimiterAgainstModel = LimiterMachine.TestCase
