"""Hold the options of an app, and check them before it opens."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from outlast.api.workflow import Workflow
from outlast.codec.identifiers import check_queue_name
from outlast.errors import SettingsError
from outlast.settings import Settings
from outlast.settings.load import load
from outlast.settings.origin import Kind
from outlast.store.address import check_address, store_at
from outlast.store.protocol import Store

log = logging.getLogger("outlast")


class AppConfig:
    """The options of an app, which `update` may change until it opens."""

    def __init__(
        self,
        store: str | Store | None,
        worker: bool,
        queues: str | Iterable[str] | None,
        workflows: Iterable[Workflow[..., Any]],
        settings: Mapping[str, Any],
    ) -> None:
        self.given: dict[str, Any] = {}
        """Settings given by keyword."""
        self.store: Store | None = None
        """The store, if the program made one itself."""
        self.worker = worker
        self.workflows: tuple[Workflow[..., Any], ...] = ()
        self.update(store, worker, queues, workflows, settings)

    @property
    def settings(self) -> Settings:
        return self._loaded.settings

    @property
    def queues(self) -> tuple[str, ...]:
        return _queue_names(self.settings.queues)

    def update(
        self,
        store: str | Store | None,
        worker: bool | None,
        queues: str | Iterable[str] | None,
        workflows: Iterable[Workflow[..., Any]],
        settings: Mapping[str, Any],
    ) -> None:
        """Override options and add workflows. None leaves an option as it is."""
        if isinstance(store, str):
            self.given["store"], self.store = store, None
        elif store is not None:
            self.store = store
        if queues is not None:
            self.given["queues"] = ",".join(_queue_names(queues))
        self.given |= {name: value for name, value in settings.items() if value is not None}
        self._loaded = load(self.given)
        if self.store is None and self._loaded.origins["store"].kind is not Kind.FOREIGN:
            check_address(self.settings.store)
        self.worker = self.worker if worker is None else worker
        self.workflows = (*self.workflows, *workflows)
        for workflow in self.workflows:
            if not isinstance(workflow, Workflow):
                raise TypeError(
                    f"workflows= takes functions decorated with @workflow, not {workflow!r}."
                )

    def check_worker(self) -> None:
        """Raise SettingsError for a worker without workflows.

        Log a warning for queue names that look like patterns: they match only literally.
        """
        if not self.worker:
            return
        if not self.workflows:
            raise SettingsError(
                "a worker needs the workflows it may execute: "
                "Outlast(worker=True, workflows=[...])."
            )
        for name in self.queues:
            if any(mark in name for mark in "*?["):
                log.warning(
                    "Queue %r is taken literally: patterns are not supported. "
                    "Name each queue: --queue a --queue b, or queues=a,b.",
                    name,
                )

    def make_store(self) -> Store:
        """Return the program's own store, or one for the address in the settings."""
        return self.store or store_at(self.address(), heartbeat=self.settings.heartbeat)

    def address(self) -> str:
        """Return the address of the store to open. Raise SettingsError if it must not be opened."""
        return self._loaded.address()


def _queue_names(queues: str | Iterable[str]) -> tuple[str, ...]:
    names = queues.split(",") if isinstance(queues, str) else queues
    if not isinstance(names, Iterable):
        raise SettingsError(f"queues={queues!r} must be names, as a list or by commas.")
    cleaned = tuple(check_queue_name(name, 200).strip() for name in names)
    if any("," in name for name in cleaned) or not all(cleaned):
        raise SettingsError(
            f"queues={queues!r}: commas separate names, so a name must not contain one or be empty."
        )
    return cleaned
