"""Import a program by the name that a command line gives it: `agent.py:report`, `pkg.mod:app`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from stat import S_ISREG
from types import ModuleType
from typing import Any

from outlast.api.workflow import Workflow
from outlast.codec.text import safe


class TargetNotFound(Exception):
    """Raised for a name that leads to no module, or to no workflow in it."""


class TargetImportFailed(Exception):
    """Raised when a program fails while it is imported. `error` is what the program raised."""

    def __init__(self, place: str, error: BaseException) -> None:
        super().__init__(f"{place} could not be imported: {type(error).__name__}: {error}")
        self.place = place
        self.error = error


def load_workflow(target: str) -> Workflow[..., Any]:
    """Return the workflow of `agent.py:report` or `pkg.mod:report`.

    Raise TargetNotFound or TargetImportFailed.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise TargetNotFound(
            f"{safe(target)!r} is not FILE:WORKFLOW, like agent.py:report or pkg.mod:report."
        )
    return _find(load_module(place), place, name)


def load_module(place: str) -> ModuleType:
    """Import and return the module of a file or a dotted name.

    Raise TargetNotFound or TargetImportFailed.
    """
    is_file = place.endswith(".py") or "/" in place or _looks_like_file(place)
    return _import_file(place) if is_file else _import_module(place)


def _looks_like_file(place: str) -> bool:
    """Return whether a name that could also be a module's is a file here.

    A path that cannot be read counts as no file, because the module may still be found elsewhere.
    """
    try:
        return Path(place).is_file()
    except OSError:
        return False


def _is_there(path: Path) -> bool:
    try:
        return S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    # For example, a folder that this user may not enter.
    except OSError as error:
        raise TargetNotFound(f"{safe(str(path))!r} cannot be read: {error.strerror}.") from None


def _import_file(place: str) -> ModuleType:
    path = Path(place)
    if not _is_there(path):
        raise TargetNotFound(f"there is no file {safe(place)!r} here.")
    path = path.resolve()
    if not path.stem.isidentifier():
        raise TargetNotFound(f"{safe(place)!r} cannot be imported: its name is not a Python name.")
    known = sys.modules.get(path.stem)
    if known is not None:
        if getattr(known, "__file__", None) and Path(str(known.__file__)).resolve() == path:
            return known
        raise TargetNotFound(
            f"{safe(place)!r} has the name of a module that is already loaded, {path.stem}. "
            "Rename the file."
        )
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TargetNotFound(f"{safe(place)!r} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(path.stem, None)
        raise TargetImportFailed(place, error) from error
    return module


def _import_module(place: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise TargetNotFound(
                f"there is no module {safe(place)!r}. "
                f"Name a file with its ending: {safe(place)}.py."
            ) from None
        raise TargetImportFailed(place, error) from error
    except (Exception, SystemExit) as error:
        raise TargetImportFailed(place, error) from error


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
    what = "is not in" if found is None else "is not a workflow in"
    there = ", ".join(safe(key) for key, _ in workflows.values())
    there = there or "none: decorate a function with @workflow"
    raise TargetNotFound(f"{safe(name)!r} {what} {safe(place)}. Workflows there: {there}.")
