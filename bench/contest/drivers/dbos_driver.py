"""DBOS: async workflows and steps, errors only in its log."""

from __future__ import annotations

from common import drive
from dbos_jobs import producer, work
from jobs import producing

if __name__ == "__main__":
    drive({"work": work, **producing(producer)})
