"""A sync workflow that sleeps."""

from fleet_flows import add_in_thread

from outlast.sync import sleep, workflow


@workflow
def sync_sleeper(n: int, seconds: float) -> int:
    n = add_in_thread(n)
    sleep(seconds)
    return add_in_thread(n)
