"""Turn `FILE:WORKFLOW` and its arguments from the command line into a `Call`."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import typer

from outlast.api import targets
from outlast.api.targets import TargetImportFailed, TargetNotFound, load_module, load_workflow
from outlast.api.workflow import Call, Workflow
from outlast.cli.exit_codes import FAILED
from outlast.cli.output import print_message, where_explained
from outlast.cli.text import one_line, parse_json, safe
from outlast.codec.codecs import describe_invalid
from outlast.errors import OutlastError
from outlast.errors.sentences import stopped


def load(target: str) -> Workflow[..., Any]:
    """Return the workflow of `agent.py:report` or `pkg.mod:report`.

    Raise a usage error if there is none. Exit with FAILED if importing the program fails.
    """
    with _refusing("FILE:WORKFLOW"):
        return load_workflow(target)


def imported(place: str, parameter: str = "FILE:WORKFLOW") -> ModuleType:
    """Import and return the module of a file or a dotted name. Fail as `load` does."""
    with _refusing(parameter):
        return load_module(place)


def call_of(workflow: Workflow[..., Any], args: Sequence[str], kwargs: str | None) -> Call[Any]:
    """Build a call from command-line texts, by the workflow's annotations.

    Raise a usage error if they do not fit.
    """
    try:
        named = parse_json(kwargs) if kwargs is not None else {}
    except (ValueError, RecursionError) as error:
        raise refusal(f"it is not JSON: {one_line(str(error))}", "--kwargs") from None
    if not isinstance(named, dict):
        raise refusal('it must be a JSON object, like {"topic": "tides"}.', "--kwargs")
    try:
        bound = workflow.signature.bind(tuple(_values(workflow, args)), named)
        return recorded_call(workflow, json.dumps(bound))
    except (OutlastError, TypeError, ValueError) as error:
        if not isinstance(error, OutlastError) and isinstance(error, TypeError):
            raise refusal(stopped(one_line(str(error))), "ARG") from None
        why = error.__cause__ if isinstance(error, OutlastError) and error.__cause__ else error
        raise refusal(
            f"the arguments do not fit {workflow.name}: {stopped(one_line(describe_invalid(why)))}",
            "ARG",
        ) from None


def recorded_call(workflow: Workflow[..., Any], text: str) -> Call[Any]:
    """Build a call from recorded arguments: JSON, by name, as a store holds them."""
    args, kwargs = workflow.signature.decode(text)
    return workflow(*args, **kwargs)


def _values(workflow: Workflow[..., Any], texts: Sequence[str]) -> list[Any]:
    hints = workflow.signature.resolve()
    positional = [
        p
        for p in workflow.signature._parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    values = [_value(text) for text in texts]
    for number, (parameter, value) in enumerate(zip(positional, values, strict=False)):
        if hints.get(parameter.name) is str and not isinstance(value, str):
            # For a `topic: str`, 2024 is the text "2024".
            values[number] = texts[number]
    return values


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return text


@contextmanager
def _refusing(parameter: str) -> Iterator[None]:
    """Turn a failure to load a program into a usage error, or into an exit with FAILED."""
    try:
        yield
    except TargetNotFound as error:
        raise refusal(str(error), parameter) from None
    except TargetImportFailed as failure:
        _report_failed_import(failure.place, failure.error)
        raise typer.Exit(FAILED) from None


def _report_failed_import(place: str, error: BaseException) -> None:
    """Print why a program could not be imported.

    The fault is in the user's code, so the traceback shows where. An OutlastError needs no
    traceback.
    """
    if not isinstance(error, (OutlastError, SystemExit)):
        frames = traceback.TracebackException.from_exception(error)
        while frames.stack and _is_ours(frames.stack[0].filename):
            frames.stack.pop(0)
        for line in "".join(frames.format()).splitlines():
            print(safe(line), file=sys.stderr)
    if isinstance(error, SystemExit):
        print_message(
            f"{place} exited while it was imported. "
            'Put the code that starts a run under `if __name__ == "__main__":`.'
        )
    else:
        print_message(f"{place} could not be imported: {type(error).__name__}: {error}")
        if isinstance(error, OutlastError):
            print_message(where_explained(error.explained_as))


def _is_ours(filename: str) -> bool:
    return filename == targets.__file__ or "importlib" in filename


def refusal(message: str, parameter: str = "FILE:WORKFLOW") -> typer.BadParameter:
    return typer.BadParameter(message, param_hint=parameter)
