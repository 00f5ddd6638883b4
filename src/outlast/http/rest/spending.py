"""Answer about limiters and budgets, and raise budgets."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from outlast.engine import actions
from outlast.engine.budgets import read_budgets
from outlast.engine.documents import budget_document, budgets_document, limiters_document
from outlast.http.rest.answers import BudgetAnswer, BudgetsAnswer, LimitersAnswer
from outlast.http.rest.calls import answer
from outlast.http.rest.requests import BudgetLimits, BudgetsPage, Nothing, Segment
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes

routes = Routes("spending")

NoQuery = Annotated[Nothing, Query()]


@routes.add("GET", "/v1/limiters", Access.READ, LimitersAnswer)
async def list_limiters(call: Call, query: NoQuery) -> Response:
    """List the limiters: what they allow, what was used, and what waits."""
    return await call.answer(limiters_document)


@routes.add("GET", "/v1/budgets", Access.READ, BudgetsAnswer)
async def list_budgets(call: Call, query: Annotated[BudgetsPage, Query()]) -> Response:
    """List budgets, ordered by id: what they allow, what is spent, and which runs wait."""
    return await call.answer(
        lambda store: budgets_document(read_budgets(store, query.after, query.limit, query.prefix))
    )


@routes.add("POST", "/v1/budgets/{id}", Access.OPERATE, BudgetAnswer)
async def raise_budget(
    id: Segment,
    call: Call,
    body: BudgetLimits,
    query: NoQuery,
) -> Response:
    """Set limits of a budget, and resume the runs that wait for it. Repeating it is harmless."""
    by = actions.checked_by(call.engine, call.by)
    info = await call.engine.budgets.raise_to(id, body.limits, by)
    return answer({"budget": budget_document(info)})
