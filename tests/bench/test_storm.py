"""The simulated storm shows what weighing the fleet's deaths gains and costs."""

from bench.storm import Storm, condemned_share, fixed, poison_deaths

from outlast.store.rows import ATTEMPTS_FACTOR_MAX, deaths_allowed


def test_an_innocent_run_survives_the_storm_that_condemned_it_before() -> None:
    storm = Storm(first_step=2.0)
    assert condemned_share(storm, fixed, 5_000) > 0.005
    assert condemned_share(storm, deaths_allowed, 5_000) == 0


def test_a_poison_run_costs_no_more_in_a_calm_fleet_and_a_bounded_number_of_deaths_in_a_storm() -> (
    None
):
    calm, storm = Storm(kills_per_minute=0.0), Storm()
    assert poison_deaths(calm, deaths_allowed, 100) == calm.attempts_max
    assert poison_deaths(storm, deaths_allowed, 100) <= ATTEMPTS_FACTOR_MAX * storm.attempts_max
