"""The options of model requests and tools, and how a tool's metadata states them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outlast.errors import SettingsError

EFFECT_TIMEOUT = 60.0
"""Seconds for one act of a tool that is an effect, if neither it nor the tool has a time-out."""


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """The options of a model request or a tool that is a step. They are those of `@step`.

    Pydantic AI and the model's client have their own retries, so there are no retries by default.
    """

    retries: int = 0
    backoff: float = 1.0
    backoff_max: float = 60.0
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception
    timeout: float | None = None


@dataclass(frozen=True, kw_only=True)
class ToolEffect:
    """Make a tool an effect: `metadata={"outlast": ToolEffect(timeout=30, verify=was_paid)}`.

    - `verify` determines whether the tool has acted, after a crash, a time-out or an exception. It
      returns `Happened(result)` or None. It takes any of the tool's parameters by name, and the
      key as `key: str = KEY`.
    - `compensate` reverses the tool if the run fails or is cancelled. It takes the tool's result,
      then any of the tool's parameters by name, and the tool's key as `effect_key`. False states
      that the tool needs none; a unit refuses a tool that states nothing.
    - The other options are those of `@effect`. The default of `timeout` is the tool's own
      time-out, or 60 seconds.

    The tool gets its idempotency key from `effect_key()`. It states that it did not act by raising
    ModelRetry, ToolFailed, ApprovalRequired or CallDeferred, or an exception in `failed_on`. Every
    other exception leaves the outcome open.

    The functions for a tool of an MCP server take all of its arguments as one dict, `arguments`.
    """

    timeout: float | None = None
    retries: int = 0
    backoff: float = 1.0
    backoff_max: float = 60.0
    failed_on: type[BaseException] | tuple[type[BaseException], ...] = ()
    idempotent: bool = False
    verify: Callable[..., Any] | None = None
    compensate: Callable[..., Any] | Literal[False] | None = None


ToolOptions = StepOptions | ToolEffect | Literal["effect", False]
"""What `metadata={"outlast": ...}` of a tool may be.

`"effect"` is short for `ToolEffect()`. With False the tool is workflow code.
"""

METADATA = "outlast"
"""The key of a tool's metadata under which its options are."""


def tool_options(
    tool: str,
    metadata: Mapping[str, Any] | None,
    tools: Mapping[str, ToolOptions],
    default: StepOptions,
) -> StepOptions | ToolEffect | Literal[False]:
    """Return a tool's options: those in `tools`, else those in its metadata, else the default.

    Raise SettingsError for anything that is none.
    """
    stated = tools.get(tool, (metadata or {}).get(METADATA))
    if stated is None:
        return default
    if stated is False or isinstance(stated, (StepOptions, ToolEffect)):
        return stated
    if stated == "effect":
        return ToolEffect()
    raise SettingsError(
        f"tool {tool} has the metadata {{'{METADATA}': {stated!r}}}. Use StepOptions(...), "
        "'effect', ToolEffect(...), or False for a tool that is workflow code."
    )
