"""Compare a budget with a plain model, in random orders of reservations, deaths and raises."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from outlast.codec.cost import Cost
from outlast.engine.budget_state import BudgetState, Verdict, hold_id

RUNS = ("a", "b", "c")
CENTS = st.integers(min_value=1, max_value=400)


def dollars(cents: int) -> Cost:
    return Cost.of({"usd": Decimal(cents) / 100})


class BudgetMachine(RuleBasedStateMachine):
    """Cents are integers in the model, so its sums are exact too."""

    uses = Bundle("uses")

    def __init__(self) -> None:
        super().__init__()
        self.limit = 1000
        self.raised: int | None = None
        self.spent = 0
        self.real = 0
        """What the provider may have counted. A call that has begun may count all it reserved."""
        self.held: dict[str, int] = {}
        self.fences = dict.fromkeys(RUNS, 1)
        self.waiting: dict[str, tuple[int, int]] = {}
        """The epoch and the fence of what each run asks."""
        self.epoch = 0
        self.count = 0
        self.text = BudgetState("answer", self.limits).text()

    @property
    def limits(self) -> dict[str, Decimal]:
        return {"usd": Decimal(self.limit) / 100}

    @property
    def allowed(self) -> int:
        return self.limit if self.raised is None else self.raised

    def change(self, apply) -> object:
        """Read the state, change it and write it, as each process does."""
        state = BudgetState.read(self.text)
        result = apply(state)
        self.text = state.text()
        return result

    def end(self, run: str, fence: int) -> None:
        for id in [id for id in self.held if id.startswith(f"{run}\n{fence}\n")]:
            self.spent += self.held.pop(id)

    @rule(target=uses, run=st.sampled_from(RUNS), cents=CENTS, age=st.integers(0, 1))
    def reserve(self, run: str, cents: int, age: int) -> tuple[str, int]:
        """Ask for a reservation, sometimes as a process that was replaced and does not know it."""
        self.count += 1
        fence = max(1, self.fences[run] - age)
        id = hold_id(run, fence, self.count)
        for older in range(1, fence):
            self.end(run, older)
        if self.spent + sum(self.held.values()) + cents <= self.allowed:
            expected = Verdict.GRANTED
        elif self.spent + cents <= self.allowed:
            expected = Verdict.BUSY
        else:
            expected = Verdict.EXHAUSTED
        is_latest = fence >= self.waiting.get(run, (0, 0))[1]

        def apply(state: BudgetState) -> Verdict:
            verdict = state.reserve(id, dollars(cents), self.limits)
            if verdict is Verdict.GRANTED:
                # The answer of the write was lost, and it is repeated.
                assert state.reserve(id, dollars(cents), self.limits) is Verdict.GRANTED
            if verdict is Verdict.EXHAUSTED:
                state.ask(run, fence, dollars(cents))
            else:
                state.withdraw(run, fence)
            return verdict

        assert self.change(apply) is expected
        if expected is Verdict.GRANTED:
            self.held[id] = cents
            self.real += cents
        if is_latest and expected is Verdict.EXHAUSTED:
            self.waiting[run] = (self.epoch, fence)
        elif is_latest:
            self.waiting.pop(run, None)
        return id, cents

    @rule(use=consumes(uses), share=st.integers(0, 100))
    def settle(self, use: tuple[str, int], share: int) -> None:
        id, cents = use
        actual = cents * share // 100
        self.change(lambda state: state.settle(id, dollars(actual)))
        if self.held.pop(id, None) is not None:
            self.spent += actual
            self.real -= cents - actual

    @rule(use=consumes(uses), more=CENTS)
    def settle_for_more(self, use: tuple[str, int], more: int) -> None:
        id, cents = use
        self.change(lambda state: state.settle(id, dollars(cents + more)))
        if self.held.pop(id, None) is not None:
            self.spent += cents + more
            self.real += more

    @rule(run=st.sampled_from(RUNS))
    def replace(self, run: str) -> None:
        """Another process takes the run over. The one before is dead, or frozen."""
        self.fences[run] += 1

    @rule(run=st.sampled_from(RUNS))
    def find_orphans(self, run: str) -> None:
        """A use that waits notices that an execution has ended."""
        fence = self.fences[run] - 1
        self.change(lambda state: state.count_orphans(run, fence))
        self.end(run, fence)

    @rule(cents=st.integers(1, 3000))
    def person_sets_the_limit(self, cents: int) -> None:
        limits = {"usd": Decimal(cents) / 100}
        for _ in range(2):
            self.change(lambda state: state.raise_to(limits, "olga"))
        if self.raised != cents:
            self.raised = cents
            self.epoch += 1
        answered = BudgetState.read(self.text).answered
        assert set(answered) == {run for run, (at, _) in self.waiting.items() if at < self.epoch}

    @rule(cents=st.integers(1, 3000))
    def deploy_changes_the_limit(self, cents: int) -> None:
        """It applies with the next use, unless a person has set another one."""
        self.limit = cents

    @rule()
    def resume(self) -> None:
        def apply(state: BudgetState) -> None:
            for run in state.answered:
                del state.asks[run]

        self.change(apply)
        self.waiting = {run: ask for run, ask in self.waiting.items() if ask[0] >= self.epoch}

    @invariant()
    def sums_are_those_of_the_model(self) -> None:
        state = BudgetState.read(self.text)
        assert state.spent.get("usd") * 100 == self.spent
        assert state.reserved.get("usd") * 100 == sum(self.held.values())
        assert set(state.asks) == set(self.waiting)

    @invariant()
    def provider_has_not_counted_more_than_the_budget(self) -> None:
        assert self.real <= self.spent + sum(self.held.values())


TestBudgetMachine = BudgetMachine.TestCase
