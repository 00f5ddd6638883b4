"""Format log records on stderr, one per line, as JSON for programs or text for people.

This module is public as `outlast.logs`. A record's fields come from `extra`: `log.info("claimed",
extra={"run": id, "fence": 7})`. Outlast's own records contain no values and no secrets. Secrets are
replaced here as well, as a safety net for what others log.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from enum import StrEnum
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from outlast.codec.text import iso, one_line, safe
from outlast.settings.redaction import MASK

FIELDS = (
    "run", "workflow", "step", "attempt", "status", "worker", "workers", "fence", "queue", "queues",
    "workflows", "concurrency", "store", "reason", "explain", "seconds",
)  # fmt: skip
"""Extras that are written, in this order."""

SECRET_MIN = 4
LEVELS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "31"}


class LogForm(StrEnum):
    JSON = "json"
    TEXT = "text"


class JSONFormatter(logging.Formatter):
    """Format a record as one JSON object per line.

    Its keys are time, level, logger, event (if the record names one), message, the extras, report
    (of a drain) and error.
    """

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            **({"event": hidden(str(record.event))} if hasattr(record, "event") else {}),
            "message": hidden(_message(record)),
            **fields_of(record),
        }
        if hasattr(record, "report"):
            document["report"] = json.loads(hidden(json.dumps(record.report)))
        trace = _trace(self, record)
        if trace:
            document["error"] = trace
        # ASCII is valid JSON in every encoding of stderr, and contains no terminal escapes.
        return json.dumps(document).replace("\x7f", "\\u007f")


class TextFormatter(logging.Formatter):
    """Format a record as one line with key=value pairs, followed by the traceback if there is one.

    Control characters are escaped, so that nothing in it acts on a terminal.
    """

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        time = (iso(record.created) or "").replace("T", " ")[:23]
        level = f"{record.levelname:<7}"
        if self._colour and record.levelname in LEVELS:
            level = f"\x1b[{LEVELS[record.levelname]}m{level}\x1b[0m"
        pairs = [f"{name}={_quoted(value)}" for name, value in fields_of(record).items()]
        line = "  ".join(
            [time, level, safe(record.name), one_line(hidden(_message(record))), " ".join(pairs)]
        )
        trace = _trace(self, record)
        return "\n".join([line.rstrip(), *(f"    {safe(text)}" for text in trace.splitlines())])


_secrets: dict[str, None] = {}
"""The secrets to hide in this process's log, the longest first: one may be part of another."""


def hide(*secrets: str) -> None:
    """Replace these secrets wherever they appear in log lines.

    That includes their URL-quoted and escaped forms. Secrets of fewer than 4 characters are not
    replaced: they would match parts of ordinary words.
    """
    plain = {form for one in secrets for form in (one, unquote(one))}
    forms = {
        form
        for one in plain
        for form in (one, quote(one, safe=""), quote_plus(one), *_escaped(one))
    }
    for secret in sorted(
        {*_secrets, *(form for form in forms if len(form) >= SECRET_MIN)}, key=len, reverse=True
    ):
        _secrets.pop(secret, None)
        _secrets[secret] = None


def _escaped(secret: str) -> tuple[str, ...]:
    """Return the secret as it appears in a repr and in JSON."""
    return (
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    )


def hidden(text: str) -> str:
    """Return the text with the secrets replaced."""
    for secret in list(_secrets):
        if secret in text:
            text = text.replace(secret, MASK)
    return text


def configure(form: str | None = None) -> None:
    """Log to stderr, as "text" on a terminal and "json" otherwise, unless `form` is given.

    A program that has set up logging keeps its own handlers unless it asks for a form.
    """
    root = logging.getLogger()
    if form is None and root.handlers:
        return
    terminal = sys.stderr.isatty()
    if form is None:
        form = LogForm.TEXT if terminal else LogForm.JSON
    chosen = LogForm(form)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JSONFormatter() if chosen is LogForm.JSON else TextFormatter(colour=terminal)
    )
    root.handlers[:] = [handler]
    # The program has not chosen a level.
    if root.level in (logging.NOTSET, logging.WARNING):
        root.setLevel(logging.INFO)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the record's known extras as plain values."""
    found = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
    return {name: _plain(value) for name, value in found.items() if value is not None}


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:
        # A log line must not be lost because of its arguments.
        return f"{record.msg} ({type(error).__name__} in its arguments)"


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return hidden("\n".join(parts))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, int):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    return hidden(str(value))


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    bare = text and not any(c.isspace() or c in "\"'=" for c in text)
    return safe(
        text if bare or not isinstance(value, str) else json.dumps(text, ensure_ascii=False)
    )
