"""Percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence


def nearest_rank(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed.

    The sequence must not be empty.
    """
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]
