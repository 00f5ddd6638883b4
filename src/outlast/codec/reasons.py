"""Prefixes of the reasons of parked runs.

The code that parks a run begins its reason with one of them. The code that tells people what to do
relies on it.
"""

from __future__ import annotations

UNKNOWN = "unknown: "
"""It is unknown whether an effect happened."""
STUCK = "stuck: "
"""The run cannot be compensated."""
DIVERGED = "the journal recorded "
"""The journal recorded something else than the code asked for."""
NO_JOURNAL = "its journal cannot be read"
