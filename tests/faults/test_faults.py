"""Inject faults into each store: two workers lose nothing, repeat nothing, and finish every run.

`fault_scenario.py` runs and judges a scenario, `fault_kinds.py` has the faults. OUTLAST_TEST_KILLS is the
long form, OUTLAST_TEST_KILL_SEED repeats a failure: see README.md.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fault_kinds import CLOCK_STEP, KILLS, KINDS, mixture, one_of_each_kind, step_clock
from fault_scenario import BRIEF_DURATIONS, DURATIONS, Scenario, closed

from outlast.testing import servers
from outlast.testing.store_images import empty_file
from support.fault_proxy import proxied_store
from support.seeds import seeded_random

ROUNDS, MIXED = KILLS // 20, KILLS // 4
"""How many faults the long form injects: of one kind, and of all kinds in one scenario."""
MIXTURE = "mixture"
CASES = [
    pytest.param(store, kind, marks=[] if kind == MIXTURE else pytest.mark.extended)
    for store in KINDS
    for kind in (MIXTURE, *KINDS[store])
]
"""`make test` mixes one fault of each kind. `make stores` also plays each kind alone, and all of its faults."""
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")

pytestmark = pytest.mark.timeout(3600 if KILLS else 600)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[servers.Server]:
    with servers.postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def own_redis() -> Iterator[servers.Server]:
    with servers.redis_server(None, *DURABLE) as server:
        yield server


@pytest.fixture
def scenario(request, store, kind, tmp_path) -> Iterator[Scenario]:
    """A scenario on the test's store. A server that is stopped is the module's own."""
    chance = seeded_random(request.node.name)
    with ExitStack() as stack:
        if kind in (CLOCK_STEP, MIXTURE):
            step_clock(tmp_path, 0.0)
        if store == "sqlite":
            address = f"sqlite:///{empty_file(tmp_path / 'outlast.db')}"
            scenario = Scenario(tmp_path, address, address, chance)
        else:
            own = kind in ("stopped server", MIXTURE)
            server = request.getfixturevalue(f"own_{store}" if own else f"{store}_server")
            proxy, through, direct = stack.enter_context(proxied_store(server.url))
            scenario = Scenario(tmp_path, through, direct, chance, proxy=proxy, server=server)
        yield stack.enter_context(closed(scenario))


@pytest.mark.parametrize(("store", "kind"), CASES)
def test_no_step_is_lost_or_repeated(scenario, store, kind):
    chance = scenario.chance
    if KILLS:
        faults = mixture(store) if kind == MIXTURE else KINDS[store][kind]
        faults = chance.choices(faults, k=MIXED if kind == MIXTURE else ROUNDS)
        scenario.play(*faults, seconds=lambda: chance.choice(DURATIONS))
    elif kind == MIXTURE:
        faults = one_of_each_kind(store, chance)
        scenario.play(*faults, seconds=lambda: chance.choice(BRIEF_DURATIONS), until_progress=True)
    else:
        scenario.play(*KINDS[store][kind], until_progress=True)
    scenario.judge()
