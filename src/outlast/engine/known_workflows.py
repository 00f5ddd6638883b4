"""Know the workflows that this process can execute, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from outlast.errors import DuplicateName
from outlast.execution.definitions import WorkflowDefinition


class KnownWorkflows(Mapping[str, WorkflowDefinition]):
    """The registered workflows by name."""

    def __init__(self) -> None:
        self._workflows: dict[str, WorkflowDefinition] = {}

    def __getitem__(self, name: str) -> WorkflowDefinition:
        return self._workflows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._workflows)

    def __len__(self) -> int:
        return len(self._workflows)

    def names(self) -> tuple[str, ...]:
        """Return the names of the workflows, in the order of their registration."""
        return tuple(self._workflows)

    def register(self, workflow: WorkflowDefinition) -> None:
        """Register a workflow by its name.

        Raise DuplicateName if another function has the name: a run could not tell which is its own.
        A new definition of the same function replaces the earlier one.
        """
        known = self._workflows.setdefault(workflow.name, workflow)
        if known is workflow or known.fn is workflow.fn:
            return
        existing = f"{known.fn.__module__}.{known.fn.__qualname__}"
        new = f"{workflow.fn.__module__}.{workflow.fn.__qualname__}"
        if existing != new:
            raise DuplicateName(
                f"two workflows have the name {workflow.name!r}: {existing} and {new}. "
                "Give one of them another name: @workflow(name=...)."
            )
        self._workflows[workflow.name] = workflow
