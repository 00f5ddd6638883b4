"""Validate settings when an app is made, before anything is opened."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from outlast.codec.identifiers import check_queue_name
from outlast.errors import BadName, LimitExceeded, SettingsError
from outlast.settings.redaction import SECRET, for_display

if TYPE_CHECKING:
    from outlast.settings.settings import Settings

GRACE_MIN = 1.0
"""In less time, no step could end, receive a stop request and be recorded: the drain would be a
kill with a report.
"""
INTERVAL_SECONDS_MIN = 0.01
"""A process that polls the store more often than this does nothing else."""
CHAOS_MODES = ("drain", "kill", "both")
STALL_MIN = 0.1
"""A garbage collection or a busy machine may take this long."""
EXIT_SECONDS = 0.3
"""Seconds before the end of the grace by which the process must be gone, at most a quarter of it.
"""

_KINDS = {"str": "a text", "int": "a whole number", "float": "a number"}
_TYPES: dict[str, Any] = {"str": (str,), "int": (int,), "float": (int, float)}
_MAY_BE_ZERO = {
    "chaos_kills_per_hour",
    "check_workflows",
    "effect_margin",
    "ramp",
    "new_share",
    "signals",
    "health_stall",
    "stall_warn",
    "checkpoint_reserve",
    "exit_reserve",
    "metrics",
    "log_values",
}
_MAY_HAVE_LINES = {"api_tokens"}
_MAY_BE_EMPTY = {
    "http",
    "http_secret",
    "api_tokens",
    "api_masked_roles",
    "api_cors_origins",
    "server",
    "token",
}


class InvalidSettings(SettingsError):
    """A setting is invalid.

    `names` lists the settings involved, so that a caller can add where their values came from.
    """

    explained_as = "SettingsError"

    def __init__(self, message: str, *names: str) -> None:
        super().__init__(message)
        self.names = names


def exit_seconds(grace: float) -> float:
    """Return how many seconds before the end of this grace the process must be gone."""
    return min(EXIT_SECONDS, grace / 4)


def check(settings: Settings) -> None:
    """Raise InvalidSettings for the first value that is impossible."""
    for field in fields(settings):
        _check_one(field.name, str(field.type), getattr(settings, field.name))
    _check_texts(settings)
    _check_signs_of_life(settings)
    _check_grace(settings)
    if settings.signals > 1:
        raise InvalidSettings(
            f"signals={settings.signals} must be 1 (SIGTERM and SIGINT begin a drain) or 0 (no "
            "handler).",
            "signals",
        )
    if settings.chaos_mode not in CHAOS_MODES:
        raise InvalidSettings(
            f"chaos_mode={settings.chaos_mode!r} must be {', '.join(CHAOS_MODES[:-1])} or "
            f"{CHAOS_MODES[-1]}.",
            "chaos_mode",
        )
    if settings.metrics > 1:
        raise InvalidSettings(
            f"metrics={settings.metrics} must be 1 (count) or 0 (count nothing).", "metrics"
        )
    if settings.new_share >= 1:
        raise InvalidSettings(
            f"new_share={settings.new_share} must be less than 1: returned runs would never be "
            "claimed.",
            "new_share",
        )
    if settings.death_backoff > settings.death_backoff_max:
        raise InvalidSettings(
            f"death_backoff={settings.death_backoff} is more than "
            f"death_backoff_max={settings.death_backoff_max}, the limit of its doubling. Raise "
            "death_backoff_max too.",
            "death_backoff",
            "death_backoff_max",
        )
    if settings.client_backoff > settings.client_backoff_max:
        raise InvalidSettings(
            f"client_backoff={settings.client_backoff} is more than "
            f"client_backoff_max={settings.client_backoff_max}, the limit of its doubling. Raise "
            "client_backoff_max too.",
            "client_backoff",
            "client_backoff_max",
        )


def _check_one(name: str, kind: str, value: Any) -> None:
    setting = f"{name}={for_display(name, value)}"
    if isinstance(value, bool) or not isinstance(value, _TYPES[kind]):
        raise InvalidSettings(f"{setting} must be {_KINDS[kind]}.", name)
    if kind == "str":
        if not value.strip() and name not in _MAY_BE_EMPTY:
            raise InvalidSettings(
                f"{name} is empty. Give it a value, or leave it out for the default.", name
            )
        text = value.replace("\n", " ").replace("\r", " ") if name in _MAY_HAVE_LINES else value
        if any(char < " " or char == "\x7f" for char in text.strip()):
            what = name if name in SECRET else setting
            raise InvalidSettings(
                f"{what} has a control character, which no address, name or HTTP header can carry.",
                name,
            )
        return
    if not 0 <= value < math.inf:
        raise InvalidSettings(f"{setting} must be a finite number, and not negative.", name)
    if value == 0 and name not in _MAY_BE_ZERO:
        raise InvalidSettings(f"{setting} must be greater than 0.", name)


def _check_texts(settings: Settings) -> None:
    for name in settings.queues.split(","):
        try:
            check_queue_name(name.strip(), settings.name_length_max)
        except (BadName, LimitExceeded) as error:
            raise InvalidSettings(
                f"queues={settings.queues!r}: {error} Separate the names by commas: default,mail.",
                "queues",
            ) from None
    if settings.http:
        from outlast.settings.http_address import parse

        try:
            parse(settings.http)
        except SettingsError as error:
            raise InvalidSettings(str(error), "http") from None
    if settings.server:
        _check_server(settings.server)


def _check_server(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        # Reading the port checks it.
        is_url = is_url and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError:
        is_url = False
    if not is_url:
        raise InvalidSettings(
            f"server={for_display('server', url)} is not the URL of an HTTP API. Write it like "
            "https://agents.example.com or http://127.0.0.1:8000.",
            "server",
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidSettings(
            f"server={for_display('server', url)} has a user or a password. Pass the token as "
            "`token` or OUTLAST_TOKEN.",
            "server",
        )


def _check_signs_of_life(settings: Settings) -> None:
    for name in ("heartbeat", "poll"):
        if getattr(settings, name) < INTERVAL_SECONDS_MIN:
            raise InvalidSettings(
                f"{name}={getattr(settings, name)} must be at least {INTERVAL_SECONDS_MIN} "
                "seconds, or this process would do nothing but poll its store.",
                name,
            )
    if settings.heartbeat * 4 > settings.lease:
        raise InvalidSettings(
            f"lease={settings.lease} must be at least four heartbeats ({settings.heartbeat} s "
            "each), or a slow worker would count as dead. Raise lease, or lower heartbeat.",
            "lease",
            "heartbeat",
        )
    if settings.stall_max < STALL_MIN:
        raise InvalidSettings(
            f"stall_max={settings.stall_max} must be at least {STALL_MIN} seconds, or a working "
            "event loop would count as blocked.",
            "stall_max",
        )
    if 0 < settings.stall_warn < STALL_MIN:
        raise InvalidSettings(
            f"stall_warn={settings.stall_warn} must be at least {STALL_MIN} seconds, or 0 to watch "
            "nothing.",
            "stall_warn",
        )


def _check_grace(settings: Settings) -> None:
    grace = settings.grace
    checkpoint = settings.checkpoint_reserve
    leave = settings.exit_reserve
    if grace < GRACE_MIN:
        raise InvalidSettings(
            f"grace={grace} must be at least {GRACE_MIN:g} second: in less, no step could end or "
            "save anything. Give this process more time, and its environment more than that "
            "(terminationGracePeriodSeconds).",
            "grace",
        )
    gone = exit_seconds(grace)
    if checkpoint + leave + gone > grace:
        raise InvalidSettings(
            f"grace={grace} is shorter than its reserves: checkpoint_reserve={checkpoint}, "
            f"exit_reserve={leave} and {gone:g} s for the process to exit. Raise grace to "
            f"{checkpoint + leave + EXIT_SECONDS:g} or more, or lower the reserves. By default "
            "each is at most a quarter of grace.",
            "grace",
            "checkpoint_reserve",
            "exit_reserve",
        )
