"""Percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence


def nearest_rank(ascending: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed. There must be one."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]
