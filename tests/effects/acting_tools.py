"""What the tests of acting effects share."""

from bank import (
    MARGIN,
    TIMEOUT,
    sync_pay,
)

from outlast import (
    workflow,
)

SPAN = TIMEOUT + MARGIN


@workflow
def paying_in_sync(label: str = "rent", seconds: float = 1.0) -> str:
    return sync_pay(label, seconds)
