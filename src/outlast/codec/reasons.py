"""What the reason of a run that is parked begins with. Whoever tells people what to do goes by it, so whoever parks a run says it so."""

from __future__ import annotations

UNKNOWN = "unknown: "
"""Whether an effect happened."""
STUCK = "stuck: "
"""It cannot be undone."""
DIVERGED = "the journal recorded "
"""Something else than the code asked for."""
NO_JOURNAL = "its journal cannot be read"
