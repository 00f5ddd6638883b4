"""Limit what a log line shows of values and errors: by default no value, and only an error's type.

An error's text may contain anything: pydantic's contains the rejected value, a driver's the row.
The full text is in the store: `outlast show`. `characters` is the setting `log_values`: how much of
a value, or of such a text, may be logged.
"""

from __future__ import annotations

from outlast.codec.exceptions import message_of, parts_of_error

CHAIN_MAX = 10
"""How many chained causes are shown."""


def cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[:characters] + "…"


def format_error(error: BaseException, characters: int) -> str:
    """Format an error for a message."""
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{name}: {cut(message_of(error), characters)}" if characters else name


def format_recorded(recorded: str, characters: int) -> str:
    """Format a recorded error for a message."""
    name, message = parts_of_error(recorded)
    return f"{name}: {cut(message, characters)}" if characters and message else name


def redact(
    error: BaseException | None, characters: int, chain: int = CHAIN_MAX
) -> BaseException | None:
    """Return a redacted copy of an error for `exc_info`.

    It keeps the traceback and the causes. Its text is cut to `characters`, by default to nothing.
    No handler of the program sees more.
    """
    if error is None or chain == 0:
        return None
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    text = (cut(message_of(error), characters),) if characters else ()
    redacted: BaseException = type(kind.__name__, (Exception,), names)(*text)
    redacted.__traceback__ = error.__traceback__
    # With a cause, the context is not shown. Usually it is the same exception.
    if error.__cause__ is not None:
        redacted.__cause__ = redact(error.__cause__, characters, chain - 1)
    elif not error.__suppress_context__:
        redacted.__context__ = redact(error.__context__, characters, chain - 1)
    return redacted


def format_reason(text: str | None, characters: int, *, ours: bool) -> str:
    """Return why a run was parked or is a dead letter, or "" if that must not be logged.

    A reason that is not entirely in Outlast's own words (`ours`) may quote an error.
    """
    if ours:
        return text or ""
    if characters:
        return cut(text or "", characters)
    kind = (text or "").partition(":")[0]
    return f"{kind}: a person must decide the outcome" if kind in ("unknown", "stuck") else ""
