"""Which amounts a step may report, and how they add up."""

import threading
from decimal import Decimal

import pytest

from outlast import NotInRun, Unrecordable, current, step, workflow
from outlast.codec.cost import NAME_LENGTH_MAX, NAMES_MAX, NOTHING, UNITS_MAX, Cost


class Index:
    def __index__(self):
        return 7


def total(*said):
    cost = NOTHING
    for one in said:
        cost += Cost.of(one)
    return cost


def test_money_adds_up_without_rounding_errors():
    assert total(*[{"usd": 0.1}] * 3).document() == {"usd": 0.3}
    assert total({"usd": 0.1}, {"usd": 0.2}).text() == '{"usd": 0.3}'
    assert total({"usd": 12345.678}).text() == '{"usd": 12345.678}'
    assert total(*[{"usd": 1e-7}] * 1000).text() == '{"usd": 0.0001}'
    assert total({"usd": 10**15}, {"usd": 1e-12}).text() == '{"usd": 1000000000000000.000000000001}'


def test_amounts_add_up_by_name_and_zeros_are_dropped():
    cost = total(
        {"tokens": 1200, "usd": 0.0}, {"usd": 0.018, "tokens": 0}, {"tokens": 34, "calls": 1}
    )
    assert cost.document() == {"tokens": 1234, "usd": 0.018, "calls": 1}
    assert str(cost) == "1,234 tokens, 0.018 usd, 1 calls"
    assert not total({"tokens": 0, "usd": 0.0})
    assert str(NOTHING) == "nothing"


@pytest.mark.parametrize(
    "amount", [3, 3.0, Decimal(3), Decimal("3.00"), 0.25, Decimal("1e-12"), Index(), 1e-300]
)
def test_every_kind_of_number_is_accepted_exactly(amount):
    cost = Cost.of({"usd": amount})
    assert Cost.read(cost.text()) == cost
    assert cost.document().get("usd", 0) == round(
        float(amount if not isinstance(amount, Index) else 7), 12
    )


@pytest.mark.parametrize(
    "amount",
    [-1, -0.001, float("nan"), float("inf"), -float("inf"), "3", None, True, [3], 3j, Decimal("NaN"), Decimal("sNaN"), Decimal(-1), 10**15 + 1, 10**5000, -(10**5000), 1e300, object()],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_other_values_are_refused_by_name(amount):
    with pytest.raises(Unrecordable, match=r"current\(\)\.cost\(usd=…\) takes") as raised:
        Cost.of({"tokens": 1, "usd": amount})
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    "name", ["", "a b", "ä", "1st", "_x", "a/b", "a\n", 'a"', "x" * (NAME_LENGTH_MAX + 1)]
)
def test_names_are_short_and_plain(name):
    with pytest.raises(Unrecordable, match="takes names of at most"):
        Cost.of({name: 1})


def test_number_of_cost_names_is_limited():
    names = [f"n{number}" for number in range(NAMES_MAX + 1)]
    assert len(Cost.of(dict.fromkeys(names[:-1], 1)).document()) == NAMES_MAX
    with pytest.raises(Unrecordable, match=f"at most {NAMES_MAX} names"):
        Cost.of(dict.fromkeys(names, 1))


def test_a_sum_over_many_runs_keeps_to_the_names_that_came_first():
    many = NOTHING
    for number in range(UNITS_MAX + 5):
        many = many.plus(Cost.of({f"n{number}": 1}), UNITS_MAX)
    many = many.plus(Cost.of({"n0": 1, "late": 1}), UNITS_MAX)
    assert len(many.document()) == UNITS_MAX
    assert many.document()["n0"] == 2


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "1", "null", '"usd"', "{", '{"usd": "3"}', '{"usd": NaN}', '{"usd": -1}', '{"usd": Infinity}', '{"usd": null}', '{"usd": [1]}',
     '{"a b": 1}', '{"usd": 1e99999999999999999999}', '{"usd": 1e999999}', '{"usd": ' + "9" * 5000 + "}", "[" * 100_000, '{"\x1b[2J": 1}'],
    ids=range(19),
)  # fmt: skip
def test_unreadable_recorded_amount_counts_as_zero(text):
    assert Cost.read(text) == NOTHING


def test_the_workflows_own_code_has_no_cost(world):
    @workflow
    async def one() -> str:
        current().cost(tokens=1)
        return "ok"

    with pytest.raises(NotInRun, match=r"current\(\)\.cost\(\) is for the body of a step"):
        world.run(one())
    with pytest.raises(NotInRun):
        current()


def test_bad_amount_fails_the_step_and_earlier_amounts_stay(world):
    attempts = []

    @step(retries=5)
    async def model() -> None:
        attempts.append(1)
        current().cost(tokens=10)
        current().cost(tokens=5, usd=-1)

    @workflow
    async def one() -> None:
        await model()

    with pytest.raises(Unrecordable, match=r"step .*model: current\(\)\.cost\(usd=…\)"):
        world.run(one())
    assert len(attempts) == 1, "a program's mistake is not paid for again"
    assert [entry.cost for entry in world.journal()] == ['{"tokens": 10}']


def test_limits_apply_to_the_sum_of_several_calls(world):
    @step
    async def model() -> str:
        for number in range(NAMES_MAX):
            current().cost(**{f"n{number}": 1})
        with pytest.raises(Unrecordable, match="names in one step"):
            current().cost(tokens=1)
        with pytest.raises(Unrecordable, match="at most"):
            current().cost(n0=10**15)
        current().cost(n0=1)
        return "ok"

    @workflow
    async def one() -> str:
        return await model()

    assert world.run(one()) == "ok"
    (entry,) = world.journal()
    assert Cost.read(entry.cost).document() == {
        "n0": 2,
        **{f"n{number}": 1 for number in range(1, NAMES_MAX)},
    }


def test_the_amounts_have_names_and_nothing_is_taken_by_position(world):
    @step
    async def model() -> str:
        with pytest.raises(TypeError):
            current().cost(0.02)
        return "ok"

    @workflow
    async def one() -> str:
        return await model()

    assert world.run(one()) == "ok"
    assert [entry.cost for entry in world.journal()] == [None]


def test_costs_from_threads_of_one_step_are_all_counted(world):
    @step
    def model() -> None:
        here = current()
        threads = [
            threading.Thread(target=lambda: [here.cost(tokens=1, usd=0.01) for _ in range(500)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @workflow
    async def one() -> None:
        await model.aio()

    world.run(one())
    assert [entry.cost for entry in world.journal()] == ['{"tokens": 4000, "usd": 40}']
