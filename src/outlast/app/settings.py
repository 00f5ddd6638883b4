"""Settings: every limit is a number here, from keywords or from the environment (prefix OUTLAST_)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from outlast.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Settings:
    store: str = "sqlite:///outlast.db"

    lease: float = 30.0
    """Seconds a worker may hold its runs without a sign of life."""
    heartbeat: float = 0.2
    """Seconds between signs of life on one host; two missed and no lock is death."""
    poll: float = 2.0
    """Seconds between looks at the store when no bell rings."""
    store_patience: float = 30.0
    """Seconds to go on trying when the store is locked, full or read-only."""
    close_timeout: float = 5.0
    """Seconds that step bodies have to end when the app closes."""

    value_size_max: int = 10_000_000
    """Bytes of one value as JSON."""
    journal_entries_max: int = 1_000_000
    """Entries of one run."""
    id_length_max: int = 500
    """Characters of a run's, message's or session's id."""
    name_length_max: int = 200
    """Characters of a workflow's, step's, queue's or message's name."""
    error_text_max: int = 20_000
    """Characters of a recorded message or traceback; longer ones are cut."""
    batch_size_max: int = 1_000
    """Verbs in one transaction."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: Any = getattr(self, field.name)
            kinds = {"str": (str,), "int": (int,), "float": (int, float)}[str(field.type)]
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise SettingsError(f"{field.name}={value!r} must be {_KINDS[str(field.type)]}.")
            if field.type != "str" and not 0 < float(getattr(self, field.name)) < math.inf:
                raise SettingsError(f"{field.name}={value!r} must be greater than 0, and finite.")
        if self.heartbeat * 4 > self.lease:
            raise SettingsError(
                f"lease={self.lease} must be at least four heartbeats ({self.heartbeat} s each): "
                "a worker that is only slow would be taken for dead."
            )

    @classmethod
    def load(cls, given: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Settings:
        """Keywords win over the environment, which wins over the defaults. Unknown keywords are an error."""
        environ = os.environ if environ is None else environ
        known = {field.name: field for field in fields(cls)}
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise SettingsError(f"unknown setting {', '.join(unknown)}. Known: {', '.join(sorted(known))}.")
        values: dict[str, Any] = {}
        for name, field in known.items():
            text = environ.get(f"OUTLAST_{name.upper()}")
            if given.get(name) is not None:
                values[name] = given[name]
            elif text is not None:
                values[name] = _parse(name, str(field.type), text)
        return cls(**values)


_KINDS = {"str": "a text", "int": "a whole number", "float": "a number of seconds"}


def _parse(name: str, kind: str, text: str) -> Any:
    try:
        return {"str": str, "int": int, "float": float}[kind](text)
    except ValueError:
        raise SettingsError(f"OUTLAST_{name.upper()}={text!r} is not a number.") from None
