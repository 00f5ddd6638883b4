"""Turn JSON into calls of workflows, with arguments that fit their annotations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from outlast.codec.codecs import describe_invalid
from outlast.errors import OutlastError, Unrecordable
from outlast.execution.definitions import WorkflowDefinition
from outlast.http.rest.problems import invalid
from outlast.http.rest.requests import WorkflowCallBody

if TYPE_CHECKING:
    from outlast.engine.engine import Engine


def workflow_call(engine: Engine, body: WorkflowCallBody, *at: str | int) -> Any:
    """Return the call of a workflow. Raise Problem 422 for arguments that do not fit it.

    `at` is where the call is in the request's body.
    """
    workflows = engine.submissions.workflows
    workflow = workflows.get(body.workflow)
    path = ("body", *at)
    if workflow is None:
        known = ", ".join(sorted(workflows)) or "none"
        raise invalid(
            [((*path, "workflow"), "the server does not know it")],
            f"The server does not know the workflow {body.workflow!r}. It knows: {known}.",
        )
    signature = workflow.signature
    try:
        bound = signature.bind(tuple(body.args), body.kwargs)
    except TypeError as error:
        raise invalid([((*path, "kwargs"), str(error))], f"{error}.", "Unrecordable") from None
    wrong = [
        ((*path, "kwargs", name, *part), message)
        for name, value in bound.items()
        for part, message in _wrong_parts(workflow, name, value)
    ]
    if wrong:
        named = ".".join(map(str, wrong[0][0][len(path) + 1 :]))
        raise invalid(
            wrong,
            f"The arguments do not fit {workflow.name}: {named}: {wrong[0][1]}",
            "Unrecordable",
        )
    try:
        args, kwargs = signature.decode(json.dumps(bound))
        make: Any = workflow
        return make(*args, **kwargs)
    except Unrecordable as error:
        raise invalid([((*path, "kwargs"), str(error))], str(error), "Unrecordable") from None


def _wrong_parts(
    workflow: WorkflowDefinition, name: str, value: Any
) -> list[tuple[tuple[str | int, ...], str]]:
    """Return which parts of an argument do not fit its annotation, each with the reason."""
    try:
        workflow.signature.decode(json.dumps({name: value}), partly=True)
    except (OutlastError, TypeError, ValueError, RecursionError) as error:
        from pydantic import ValidationError

        cause = error.__cause__
        if isinstance(cause, ValidationError):
            found = cause.errors(include_url=False, include_context=False, include_input=False)
            return [(one["loc"], one["msg"]) for one in found]
        return [((), describe_invalid(error))]
    return []
