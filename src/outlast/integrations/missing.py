"""Explain what to install if an adapter's framework is missing or too old."""

from __future__ import annotations

from outlast.errors import SettingsError


def missing_framework(extra: str, needed: str, error: ImportError) -> SettingsError:
    """Return the error for an adapter whose framework cannot be imported.

    `extra` is the extra of this package that installs the framework, `needed` its version.
    """
    return SettingsError(
        f"this adapter needs {needed} ({error}). Install it with: pip install 'outlast[{extra}]'"
    )
