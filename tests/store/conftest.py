"""Choose the stores that each conformance test runs on. `make stores` runs all of them on every store."""

import os
from zlib import crc32

import pytest

from outlast.testing.conformance import StoreConformance
from outlast.testing.conformance.concurrency import CrowdContract
from outlast.testing.conformance.durability import DurabilityContract, ReopeningContract
from outlast.testing.conformance.values import ValueContract

SAME_COMMANDS = ("TestSQLiteFile", "TestFile")
"""Suites of one implementation: the file store is the SQLite store in memory, with journals beside it."""
SUITES = (SAME_COMMANDS, ("TestPostgres",), ("TestRedis",))
"""The suites of each implementation."""
OWN_FILES = (CrowdContract, DurabilityContract, ReopeningContract, ValueContract)
"""Promises that depend on what a store does with its files, and not on its commands alone."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run each promise on every implementation, and its further cases on one implementation each.

    The first case of a parametrized test runs on every implementation.
    """
    if os.environ.get("OUTLAST_TEST_STORES") == "all" or any("[" in name for name in config.args):
        return
    elsewhere = [item for item in items if _runs_elsewhere(item)]
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
        items[:] = [item for item in items if not _runs_elsewhere(item)]


def _runs_elsewhere(item: pytest.Item) -> bool:
    suite = getattr(item, "cls", None)
    if suite is None or not issubclass(suite, StoreConformance):
        return False
    test, case = item.originalname, getattr(item, "callspec", None)
    if case is not None and any(case.indices.values()):
        test = f"{test}[{case.id}]"
        if suite.__name__ not in _turn(test, SUITES):
            return True
    elif _defined_in(suite, test) in OWN_FILES:
        return False
    return suite.__name__ in SAME_COMMANDS and suite.__name__ != _turn(test, SAME_COMMANDS)


def _turn(name: str, choices: tuple) -> object:
    return choices[crc32(name.encode()) % len(choices)]


def _defined_in(suite: type, test: str) -> type:
    return next(each for each in suite.__mro__ if test in vars(each))
