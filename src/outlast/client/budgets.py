"""List and raise budgets."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from outlast.client.actions import numbers
from outlast.client.rows import Document
from outlast.client.transport import Transport, segment
from outlast.engine.budgets import BudgetInfo


def budget_info(document: Document) -> BudgetInfo:
    """Return a budget."""
    same = {name: document[name] for name in BudgetInfo._fields}
    return BudgetInfo(**{**same, "waiting": tuple(document["waiting"])})


async def list_budgets(
    transport: Transport, prefix: str, after: str | None, limit: int
) -> list[BudgetInfo]:
    """Return budgets, ordered by id. Damaged ones are left out."""
    page: dict[str, str | int | None] = {"prefix": prefix, "limit": limit, "after": after}
    found = await transport.get("/v1/budgets", page)
    return [budget_info(one) for one in found["budgets"]]


async def raise_budget(
    transport: Transport, id: str, limits: Mapping[str, float | Decimal]
) -> BudgetInfo:
    """Set limits of a budget, and return it."""
    body = {"limits": numbers(limits)}
    found = await transport.act("POST", f"/v1/budgets/{segment(id)}", body)
    return budget_info(found["budget"])
