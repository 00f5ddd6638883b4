"""Drive DBOS. Each option is explained where it is set."""

from __future__ import annotations

from common import drive
from dbos_jobs import producer, work
from dbos_steps import steps
from jobs import producing

if __name__ == "__main__":
    drive({"steps": steps, "work": work, **producing(producer)})
