"""What an execution knows of steps, effects and workflows.

The decorated functions of `api` inherit from these definitions and add how they are called, so an
execution and a user hold the same object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from outlast.codec.error_codec import ErrorCodec
from outlast.codec.identifiers import escape_name
from outlast.codec.signature import Signature

RetryOn = type[BaseException] | tuple[type[BaseException], ...]
WATCHED_CALLS = 10
"""How many calls of a step in one process are checked for changed arguments."""


class StepDefinition:
    """A step's function, its name and its options. All values were checked before."""

    # 16 attributes: the eight options, and what each call reads of the function and its signature.
    kind: ClassVar[str] = "step"

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str,
        *,
        retries: int,
        backoff: float,
        backoff_max: float,
        timeout: float | None,
        retry_on: RetryOn = Exception,
        errors: ErrorCodec | None = None,
        signature: Signature | None = None,
    ) -> None:
        self.fn = fn
        self.name = name
        self.key_part = escape_name(name)
        """The name as a part of a call's key."""
        self.retries = int(retries)
        self.backoff = backoff
        self.backoff_max = backoff_max
        self.timeout = timeout
        self.retry_on = retry_on
        self.is_async = inspect.iscoroutinefunction(fn)
        self.errors = errors
        self.signature = signature or Signature(fn)
        self.is_measured = True
        """Whether its durations are recorded, for drains."""
        self.watched = WATCHED_CALLS
        """How many more calls in this process are checked for changed arguments."""
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__
        self.__wrapped__ = fn

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


class EffectDefinition(StepDefinition):
    """An effect: a step with a key, a verifier and a compensation.

    The last two are added after the effect was defined.
    """

    kind = "effect"

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str,
        *,
        retries: int,
        backoff: float,
        backoff_max: float,
        timeout: float,
        failed_on: tuple[type[BaseException], ...],
        idempotent: bool,
        undo_needed: bool,
        key_name: str | None,
    ) -> None:
        super().__init__(
            fn, name, retries=retries, backoff=backoff, backoff_max=backoff_max, timeout=timeout
        )
        self.failed_on = failed_on
        self.idempotent = idempotent
        self.undo_needed = undo_needed
        self.key_name = key_name
        """The parameter that takes the effect's key, if it has one."""
        self.code = f"{fn.__module__}:{fn.__qualname__}:{name}"
        """Where the function is defined. Recorded as a hint, in case two effects have one name."""
        self.compensation: EffectDefinition | None = None
        self.verifier: Callable[..., Any] | None = None
        self.verify_names: frozenset[str] = frozenset()
        """The parameters of the verifier."""
        self.verify_key: str | None = None
        """The parameter of the verifier that takes the effect's key, if it has one."""


class WorkflowDefinition:
    """A workflow's function, its name and its options. All values were checked before."""

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str,
        *,
        timeout: float | None,
        abandon_after: float | None,
    ) -> None:
        self.fn = fn
        self.name = name
        self.key_part = escape_name(name)
        """The name as a part of a call's key."""
        self.timeout = timeout
        self.abandon_after = abandon_after
        self.is_async = inspect.iscoroutinefunction(fn)
        self.signature = Signature(fn)
        self.checked = False
        """Whether its code was checked for calls that differ from one execution to the next."""
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__
        self.__wrapped__ = fn

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


class WorkflowCall:
    """A workflow with its encoded arguments."""

    def __init__(self, workflow: WorkflowDefinition, args: str) -> None:
        self.workflow = workflow
        self.args = args

    def __repr__(self) -> str:
        return f"<call {self.workflow.name}({self.args})>"
