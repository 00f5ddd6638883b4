"""Test your own workflows: an app in memory on a virtual clock, stubs, and a crash at every write.

The pytest plugin `outlast.testing.plugin` provides the fixtures `outlast_app` and `outlast_clock`.
`outlast.testing.conformance` states what a store promises. It needs pytest, so import it by its
name.
"""

from outlast.testing.app import App
from outlast.testing.clock import VirtualClock, VirtualLoop
from outlast.testing.crash import crash_everywhere
from outlast.testing.crash_report import Broke, CrashReport
from outlast.testing.killed_processes import crash_processes

__all__ = [
    "App",
    "Broke",
    "CrashReport",
    "VirtualClock",
    "VirtualLoop",
    "crash_everywhere",
    "crash_processes",
]
