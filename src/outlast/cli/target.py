"""Turn `FILE:WORKFLOW` and its arguments from the command line into a `Call`."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG
from types import ModuleType
from typing import Any, NoReturn

import typer

from outlast.api.workflow import Call, Workflow
from outlast.cli.exit_codes import FAILED
from outlast.cli.output import say, where_explained
from outlast.cli.text import one_line, parse_json, safe
from outlast.errors import OutlastError


def load(target: str) -> Workflow[..., Any]:
    """Return the workflow of `agent.py:report` or `pkg.mod:report`, or raise a usage error."""
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise refusal(
            f"{safe(target)!r} is not FILE:WORKFLOW, like agent.py:report or pkg.mod:report."
        )
    return _find(imported(place), place, name)


def imported(place: str, parameter: str = "FILE:WORKFLOW") -> ModuleType:
    """Import and return the module of a file or a dotted name.

    Raise a usage error if it does not exist. Exit with FAILED if importing it fails.
    """
    is_file = place.endswith(".py") or "/" in place or _looks_like_file(place)
    return _import_file(place, parameter) if is_file else _import_module(place, parameter)


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
        why = error.__cause__ if isinstance(error, OutlastError) and error.__cause__ else error
        raise refusal(
            f"the arguments do not fit {workflow.name}: {one_line(str(why))}", "ARG"
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


def _looks_like_file(place: str) -> bool:
    """Return whether a name that could also be a module's is a file here.

    A path that cannot be read counts as no file, because the module may still be found elsewhere.
    """
    try:
        return Path(place).is_file()
    except OSError:
        return False


def _is_there(path: Path, parameter: str) -> bool:
    try:
        return S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    # For example, a folder that this user may not enter.
    except OSError as error:
        raise refusal(
            f"{safe(str(path))!r} cannot be looked at: {error.strerror}.", parameter
        ) from None


def _import_file(place: str, parameter: str) -> ModuleType:
    path = Path(place)
    if not _is_there(path, parameter):
        raise refusal(f"there is no file {safe(place)!r} here.", parameter)
    path = path.resolve()
    if not path.stem.isidentifier():
        raise refusal(
            f"{safe(place)!r} cannot be imported: its name is not a Python name.", parameter
        )
    known = sys.modules.get(path.stem)
    if known is not None:
        if getattr(known, "__file__", None) and Path(str(known.__file__)).resolve() == path:
            return known
        raise refusal(
            f"{safe(place)!r} has the name of a module that is loaded already, {path.stem}: rename the file.",
            parameter,
        )
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise refusal(f"{safe(place)!r} is not a Python file.", parameter)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(path.stem, None)
        _could_not_import(place, error)
    return module


def _import_module(place: str, parameter: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise refusal(
                f"there is no module {safe(place)!r}. A file is named with its ending: {safe(place)}.py.",
                parameter,
            ) from None
        _could_not_import(place, error)
    except (Exception, SystemExit) as error:
        _could_not_import(place, error)


def _could_not_import(place: str, error: BaseException) -> NoReturn:
    """Report a failed import and exit with FAILED.

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
        say(
            f'{place} ended itself while it was imported. Keep what starts a run under `if __name__ == "__main__":`.'
        )
    else:
        say(f"{place} could not be imported: {type(error).__name__}: {error}")
        if isinstance(error, OutlastError):
            say(where_explained(error.explained_as))
    raise typer.Exit(FAILED) from None


def _is_ours(filename: str) -> bool:
    return filename == __file__ or "importlib" in filename


def _find(module: ModuleType, place: str, name: str) -> Workflow[..., Any]:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Workflow):
        return found
    workflows = {
        value.name: (key, value)
        for key, value in vars(module).items()
        if isinstance(value, Workflow)
    }
    if name in workflows:
        return workflows[name][1]
    here = (
        ", ".join(safe(key) for key, _ in workflows.values())
        or "none: decorate a function with @workflow"
    )
    what = (
        f"is not a workflow in {safe(place)}" if found is not None else f"is not in {safe(place)}"
    )
    raise refusal(f"{safe(name)!r} {what}. Workflows there: {here}.")


def refusal(message: str, parameter: str = "FILE:WORKFLOW") -> typer.BadParameter:
    return typer.BadParameter(message, param_hint=parameter)
