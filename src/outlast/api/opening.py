"""Build what one opening of an app consists of: its engine and its shutdown coordinator.

`AppLifecycle` imports this module when an app opens, so that `import outlast` loads no engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from outlast.api.app_config import AppConfig
from outlast.engine.engine import Engine
from outlast.engine.execution_mode import ExecutionMode
from outlast.engine.hooks import Hook
from outlast.engine.registration import Offer
from outlast.execution.shutdown_state import ShutdownState
from outlast.shutdown.coordinator import AppCallbacks, ShutdownCoordinator

__all__ = ["AppCallbacks", "ShutdownCoordinator", "build_engine", "claim"]


def build_engine(
    config: AppConfig, hooks: Mapping[str, Hook], mode: ExecutionMode | None
) -> Engine:
    """Build the engine of one opening, with its store, its workflows and its queues."""
    settings, loop, mode = config.settings, asyncio.get_running_loop(), mode or ExecutionMode()
    shutdown = ShutdownState(settings, loop, None if mode.threads else loop.time)
    engine = Engine(config.make_store(), settings, loop, shutdown, mode=mode, hooks=hooks)
    for workflow in config.workflows:
        engine.workflows.register(workflow)
    if config.worker:
        offer = Offer(config.queues, tuple(engine.workflows), settings.concurrency)
        engine.worker.announce(offer)
    return engine


def claim(engine: Engine, config: AppConfig) -> None:
    """Become a worker: claim runs from the app's queues, and fire the schedules in its code."""
    from outlast.api.schedule_definitions import declared_in

    settings = config.settings
    engine.claim_from(config.queues, settings.concurrency, declared_in(config.workflows, settings))
