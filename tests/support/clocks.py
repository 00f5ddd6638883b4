"""Move the clock of a test's processes, so that no test waits for the end of a lease."""

import time
from contextlib import closing
from pathlib import Path

from outlast.store.address import store_at
from outlast.store.commands import Sweep, Swept

STEPS_MAX = 100


class MovableClock:
    """The time of every process that adds the seconds in the file `clock` of its folder to its own."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"

    @property
    def is_set(self) -> bool:
        return self._file.exists()

    @property
    def ahead(self) -> float:
        """Seconds by which the clock is ahead."""
        return float(self._file.read_text()) if self.is_set else 0.0

    def set(self, ahead: float) -> None:
        new = self._file.with_name("clock.new")
        new.write_text(str(ahead))
        new.rename(self._file)

    def __call__(self) -> float:
        return time.time() + self.ahead


def let_lease_run_out(address: str, clock: MovableClock, lease: float) -> None:
    """Move the clock until a worker is taken for dead. No worker may renew a lease this short meanwhile.

    This sweeps as another worker would. The steps are short, because a store that gave no sign of life
    for half a lease leaves every worker a whole lease to renew.
    """
    store = store_at(address, clock=clock)
    store.open()
    with closing(store):
        for _ in range(STEPS_MAX):
            clock.set(clock.ahead + 0.4 * lease)
            (swept,) = store.commit([Sweep(backoff=0.05)])
            assert isinstance(swept, Swept), swept
            if swept.workers:
                return
    raise AssertionError(f"no worker is dead: {lease=}")
