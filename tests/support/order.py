"""Put the tests in an order that keeps all cores busy until the end.

xdist gives each worker a contiguous part of the list, and a worker that is done takes tests from the end of
another's part. Long tests wait more than they compute. They start early in each part, with short tests
between them, so that at any moment some workers compute while others wait. Short tests are left for the end.
"""

from collections.abc import Sequence

import pytest

LONG_FILES = (
    "tests/tools/chaos/test_chaos_experiment.py",
    "tests/fleet/test_silent_servers.py",
    "tests/faults/test_faults.py",
    "tests/streams/test_watch_kills.py",
    "tests/fleet/test_fleet_stale.py",
    "tests/examples/test_examples_together.py",
    "tests/tools/demo/test_demo_run.py",
    "tests/examples/test_examples_page.py",
    "tests/fleet/test_fleet_poison.py",
    "tests/examples/test_examples_alone.py",
    "tests/property/test_crash_everywhere.py",
    "tests/process/test_process_outage.py",
    "tests/tools/bench/test_bench_command.py",
    "tests/fleet/test_fleet_clocks.py",
    "tests/bench/test_contest_death.py",
    "tests/store/test_deadlines.py",
    "tests/streams/test_stream_processes.py",
    "tests/docs/test_console.py",
    "tests/process/test_process_stale.py",
    "tests/docs/test_snippets.py",
    "tests/fleet/test_fleet_outage.py",
    "tests/tools/doctor/test_doctor_servers.py",
    "tests/effects/test_ledger_chaos.py",
    "tests/process/test_process_wake.py",
    "tests/shutdown/test_hung_steps.py",
    "tests/tools/demo/test_demo_checks.py",
    "tests/shutdown/test_sigkill_during_drain.py",
    "tests/property/test_generated_workflows.py",
    "tests/each/test_each_processes.py",
    "tests/fleet/test_fleet_rollout.py",
    "tests/fleet/test_fleet_asleep.py",
    "tests/store/test_redis_liveness.py",
    "tests/fleet/test_fleet_kills.py",
    "tests/store/test_postgres_liveness.py",
    "tests/fleet/test_fleet_submit.py",
    "tests/process/test_process_hung.py",
    "tests/shutdown/test_kubelet.py",
    "tests/shutdown/test_rolling.py",
    "tests/store/test_conformance_postgres.py",
    "tests/store/test_crash_processes.py",
    "tests/typing/test_typing.py",
    "tests/integrations/claude_agent/test_claude_killed.py",
    "tests/integrations/claude_agent/test_claude_turns.py",
    "tests/integrations/claude_agent/test_claude_crashes.py",
)
"""The files that take longest, roughly the longest first."""
BEFORE_LAST_LONG_FILE = 0.75
"""Which share of a worker's short tests lies between its long files."""


def spread_long_files(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in the order for this many workers of xdist."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    long = [files.pop(name) for name in LONG_FILES if name in files]
    short = [item for file in files.values() for item in file]
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        own = [file for turn, file in enumerate(long) if _worker_of(turn, workers) == worker]
        size = (len(items) - len(ordered)) // (workers - worker)  # as xdist divides them
        fill = max(0, size - sum(map(len, own)))
        ordered += _interleaved(own, short[:fill])
        short = short[fill:]
    return ordered + short


def _worker_of(turn: int, workers: int) -> int:
    """Deal the files out forwards, then backwards, so that no worker gets the longest of each round."""
    position = turn % (2 * workers)
    return min(position, 2 * workers - 1 - position)


def _interleaved(long: list[list[pytest.Item]], short: list[pytest.Item]) -> list[pytest.Item]:
    between = int(len(short) * BEFORE_LAST_LONG_FILE) // max(1, len(long))
    ordered: list[pytest.Item] = []
    for number, file in enumerate(long):
        ordered += file
        ordered += short[number * between : (number + 1) * between]
    return ordered + short[len(long) * between :]
