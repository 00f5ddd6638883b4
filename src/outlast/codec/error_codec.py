"""Record and rebuild errors with a step's own codec."""

from __future__ import annotations

import json
import logging
from typing import Any, Protocol

from outlast.codec import plain_json

log = logging.getLogger("outlast.replay")


class ErrorCodec(Protocol):
    """Record errors that Outlast cannot rebuild without help: `@step(errors=codec)`."""

    def encode(self, error: BaseException) -> Any:
        """Return JSON data from which `decode` rebuilds the error.

        Return None for an error that is recorded as usual.
        """

    def decode(self, data: Any) -> BaseException:
        """Rebuild the error from what `encode` returned. It must not do I/O."""


def own_data(error: BaseException, codec: ErrorCodec, text_max: int) -> Any:
    """Return the data that the codec records, or None if the codec cannot rebuild the error."""
    try:
        data = codec.encode(error)
        if data is None:
            return None
        text = plain_json.encode(data)
        problem = _problem(error, codec, text, text_max)
    except Exception as failure:
        problem = f"{type(failure).__name__}: {failure}"
    if problem is None:
        return data
    log.warning(
        "The error codec of a step cannot record %s, so Outlast records it without the codec: %s",
        type(error).__qualname__,
        problem,
    )
    return None


def _problem(error: BaseException, codec: ErrorCodec, text: str, text_max: int) -> str | None:
    if len(text) > text_max:
        return f"its data has {len(text)} characters, and error_text_max is {text_max}"
    rebuilt = codec.decode(json.loads(text))
    if type(rebuilt) is not type(error):
        return f"decode returned {type(rebuilt).__qualname__}"
    return None


def rebuild_own(recorded: dict[str, Any], codec: ErrorCodec | None) -> BaseException | None:
    """Return the error that the codec rebuilds, or None if the codec has not recorded it.

    If the codec fails, because it or its library has changed, return None too.
    """
    if codec is None or "data" not in recorded:
        return None
    try:
        error = codec.decode(recorded["data"])
    except Exception:
        log.warning(
            "The error codec of a step cannot rebuild %s. The workflow gets the error as it does "
            "without a codec.",
            recorded["type"],
            exc_info=True,
        )
        return None
    return error if isinstance(error, BaseException) else None
