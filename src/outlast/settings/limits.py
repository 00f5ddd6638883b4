"""Check values against the limits of the settings."""

from __future__ import annotations

from outlast.errors import LimitExceeded
from outlast.settings.settings import Settings


def check_size(settings: Settings, text: str, what: str) -> None:
    """Raise LimitExceeded if an encoded value is longer than `value_size_max`."""
    if len(text) > settings.value_size_max:
        raise LimitExceeded("value_size_max", settings.value_size_max, len(text), what)
