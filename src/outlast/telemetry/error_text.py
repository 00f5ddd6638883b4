"""What a log line may say of a value or an error: by default nothing of the one, and the type of the other.

An error's text may have anything in it: pydantic's has what did not fit, a driver's the row. Where it can be read is the store: `outlast show`.
`characters` is the setting `log_values`: how much of a value, or of such a text, may be logged.
"""

from __future__ import annotations

from outlast.codec.exceptions import message_of, parts_of_error

CHAIN_MAX = 10
"""Causes of causes that are shown."""


def cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[:characters] + "…"


def format_error(error: BaseException, characters: int) -> str:
    """An error, for a message."""
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{name}: {cut(message_of(error), characters)}" if characters else name


def format_recorded(recorded: str, characters: int) -> str:
    """The same of one that is on record."""
    name, message = parts_of_error(recorded)
    return f"{name}: {cut(message, characters)}" if characters and message else name


def redact(
    error: BaseException | None, characters: int, chain: int = CHAIN_MAX
) -> BaseException | None:
    """The same for `exc_info`: where it was raised, and by what, without what it says. Whatever handler a program has: it gets no more."""
    if error is None or chain == 0:
        return None
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    text = (cut(message_of(error), characters),) if characters else ()
    redacted: BaseException = type(kind.__name__, (Exception,), names)(*text)
    redacted.__traceback__ = error.__traceback__
    if (
        error.__cause__ is not None
    ):  # then what it was raised in is not shown; it is the same as a rule
        redacted.__cause__ = redact(error.__cause__, characters, chain - 1)
    elif not error.__suppress_context__:
        redacted.__context__ = redact(error.__context__, characters, chain - 1)
    return redacted


def format_reason(text: str | None, characters: int, *, ours: bool) -> str:
    """Why a run was parked, or is a dead letter; empty where that must not be said. What is not all in our own words may quote an error."""
    if ours:
        return text or ""
    if characters:
        return cut(text or "", characters)
    kind = (text or "").partition(":")[0]
    return f"{kind}: a person must say what came of it" if kind in ("unknown", "stuck") else ""
