"""Define the exit codes that scripts can rely on."""

from __future__ import annotations

from outlast.client.errors import ApiError
from outlast.errors import (
    Backpressure,
    BadCursor,
    BadName,
    Draining,
    OutlastError,
    SettingsError,
    StoreUnavailable,
    UnknownEffect,
    UnknownRun,
    UnknownSchedule,
    WrongStatus,
)
from outlast.shutdown import process

OK = 0
FAILED = 1
USAGE = 2
UNKNOWN_RUN = 3
WRONG_STATUS = 4
PARKED = 5
CANCELLED = 6
TRY_AGAIN = process.TRY_AGAIN
INTERRUPTED = process.INTERRUPTED

MEANINGS = {
    OK: "done",
    FAILED: "the run failed or is a dead letter, or a check or the command failed",
    USAGE: "the command line, a setting or the store's address is wrong",
    UNKNOWN_RUN: "no run, session or schedule has this id",
    WRONG_STATUS: "the run is not in a status that allows this",
    PARKED: "the run is parked: it waits for a person",
    CANCELLED: "the run was cancelled",
    TRY_AGAIN: "interrupted, queue full, or store unavailable: repeat the command",
    INTERRUPTED: "interrupted by SIGINT (Ctrl-C): repeat the command to continue",
}

FORCED = (63, 137, 142, 143)
"""Codes that shells and containers report for a killed process.

No command exits with them, but `outlast explain` knows them.
"""

OF_STATUS = {"done": OK, "failed": FAILED, "dead": FAILED, "parked": PARKED, "cancelled": CANCELLED}
"""The exit code of `outlast run`, by how the run ended."""


def code_of(error: OutlastError) -> int:
    """Return the exit code of an error that is not a run's own failure."""
    if isinstance(error, (UnknownRun, UnknownSchedule)):
        return UNKNOWN_RUN
    if isinstance(error, UnknownEffect):
        return USAGE if error.there else WRONG_STATUS
    if isinstance(error, WrongStatus):
        return WRONG_STATUS
    if isinstance(error, (Backpressure, Draining, StoreUnavailable)):
        return TRY_AGAIN
    if isinstance(error, (SettingsError, BadName, BadCursor)):
        return USAGE
    if isinstance(error, ApiError):
        return USAGE if error.status < 500 else FAILED
    return FAILED
