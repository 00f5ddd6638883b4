"""The keyword options of `Outlast` that are no settings, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from outlast.settings.options import SettingsOptions

if TYPE_CHECKING:
    from outlast.api.workflow import Workflow
    from outlast.engine.hooks import Hook


class AppOptions(SettingsOptions, total=False):
    """The options that the testing `App` passes on to `Outlast`."""

    worker: bool
    queues: str | Iterable[str] | None
    workflows: Iterable[Workflow[..., Any]]
    lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None
    on_parked: Hook | None
    on_dead: Hook | None
