"""Load settings from their sources.

In order of precedence: keywords, OUTLAST_… variables, .env, files of secrets, variables of other
tools, defaults.

pydantic-settings would read the first four. It is not used because its import takes 100 ms, three
times as long as opening an app, and because it reports neither the source of a value nor unknown
variables. python-dotenv, which comes with it, parses .env files that name a setting.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, NamedTuple

from outlast.errors import SettingsError
from outlast.settings import third_party_env
from outlast.settings.checks import InvalidSettings
from outlast.settings.files import of_files
from outlast.settings.origin import Kind, Origin, RawValue
from outlast.settings.redaction import for_display, masked
from outlast.settings.settings import Settings
from outlast.settings.variables import (
    PREFIX,
    check_names,
    is_below_working_folder,
    names_env_file,
    nearest,
    of_env_file,
    of_environment,
    trust_advice,
)

log = logging.getLogger("outlast.settings")

DEFAULT = Origin(Kind.DEFAULT)
KEYWORD = Origin(Kind.KEYWORD)
DEFAULTS = Settings()
RESERVES = ("checkpoint_reserve", "exit_reserve")
"""Parts of the grace. Unless given, each is at most a quarter of it."""

_FOREIGN = {"store": third_party_env.store_of, "grace": third_party_env.grace_of}
SWITCHES = frozenset({"signals", "metrics"})
"""Settings that are on (1) or off (0)."""
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


class Loaded(NamedTuple):
    """The settings in force, and where each came from."""

    settings: Settings
    origins: dict[str, Origin]
    env_file: Path | None = None
    """The .env file that was read."""
    secrets_dir: Path | None = None
    """The folder that was searched for files of secrets."""
    store_error: SettingsError | None = None
    """Why the found store may not be opened. It matters only to an app without another store."""
    server_error: SettingsError | None = None
    """Why the found server may not be asked. It matters only to a client without another URL."""

    def address(self) -> str:
        """Return the address of the store to open, or raise `store_error`.

        Log a warning if it comes from another tool's variable: the user may expect another store.
        """
        if self.store_error is not None:
            raise self.store_error
        origin = self.origins["store"]
        if origin.kind is Kind.FOREIGN:
            log.warning(
                "Using the store %s from %s, because no setting of Outlast names one. Set "
                "OUTLAST_STORE to choose another.",
                masked(self.settings.store),
                origin,
            )
        return self.settings.store

    def server(self) -> str:
        """Return the URL of the server, or "" if none is set. Raise `server_error`."""
        if self.server_error is not None:
            raise self.server_error
        return self.settings.server.rstrip("/")


def load(given: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Loaded:
    """Load the settings. Raise SettingsError for anything unknown, unreadable or impossible.

    This opens nothing but the files of settings.
    """
    environ = os.environ if environ is None else environ
    known = {field.name: field for field in fields(Settings)}
    given = {name: value for name, value in given.items() if value is not None}
    _check_keywords(given, known)
    set_here = of_environment(environ)
    check_names(set_here, known)
    env_file, in_file = of_env_file(set_here, known)
    # A setting given by keyword needs no file, and its file may be missing.
    asked = [name for name in known if name not in given]
    secrets_dir, in_files = of_files({**in_file, **_without_empty(set_here, in_file)}, asked, known)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(known, DEFAULT)
    store_error: SettingsError | None = None
    for name, field in known.items():
        if name in given:
            values[name] = _given(name, given[name])
            origins[name] = KEYWORD
            continue
        variable = f"{PREFIX}{name.upper()}"
        raw = _first(set_here.get(variable), in_file.get(variable), in_files.get(name))
        if raw is None and name in _FOREIGN:
            try:
                raw = _FOREIGN[name](environ)
            except SettingsError as error:
                store_error = error
        if raw is not None:
            values[name] = _parse(field, raw)
            origins[name] = raw.origin
    if isinstance(values.get("store"), str):
        values["store"] = third_party_env.plain_address(values["store"])
        if origins["store"].kind is Kind.ENV_FILE and not names_env_file(set_here):
            store_error = _untrusted_store(values["store"], origins["store"])
    settings = _settings(values, origins)
    server_error: SettingsError | None = None
    if origins["server"].kind is Kind.ENV_FILE and not names_env_file(set_here):
        server_error = _untrusted_server(settings.server, origins["server"])
    return Loaded(settings, origins, env_file, secrets_dir, store_error, server_error)


def _untrusted_server(url: str, origin: Origin) -> SettingsError:
    """Return why a server named by an unnamed .env file may not be asked.

    It would get this user's token, and decide what every command here shows.
    """
    return SettingsError(
        f"{origin} is {masked(url)}, which a .env file names. {trust_advice(origin.place)}"
    )


def _untrusted_store(address: str, origin: Origin) -> SettingsError | None:
    """Return why a store named by an unnamed .env file may not be opened; None if it may be.

    A folder brings its own files along anyway, so a store among them adds no danger. A server would
    get this user's password, and decide what every command here shows and does.
    """
    if is_below_working_folder(address):
        return None
    return SettingsError(
        f"{origin} is {masked(address)}, which is not a file below the working folder. "
        f"{trust_advice(origin.place)}"
    )


def _check_keywords(given: Mapping[str, Any], known: Mapping[str, Field[Any]]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise SettingsError(f"unknown setting {', '.join(unknown)}. {nearest(unknown, known)}")


def _given(name: str, value: Any) -> Any:
    return int(value) if name in SWITCHES and isinstance(value, bool) else value


def _without_empty(
    first: Mapping[str, RawValue], second: Mapping[str, RawValue]
) -> dict[str, RawValue]:
    """Drop empty values where the next source has one.

    Compose files pass unset variables on as empty.
    """
    return {name: raw for name, raw in first.items() if raw.text or name not in second}


def _first(*sources: RawValue | None) -> RawValue | None:
    return next((raw for raw in sources if raw is not None and raw.text.strip()), None)


def _parse(field: Field[Any], raw: RawValue) -> Any:
    kind = str(field.type)
    text = raw.text.strip()
    if kind == "str":
        return text
    if field.name in SWITCHES and text.lower() in (*_YES, *_NO):
        return int(text.lower() in _YES)
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        # The message shows nothing of a file of secrets, whatever the setting.
        where = str(raw.origin)
        source = where if raw.origin.kind is Kind.SECRET_FILE else _pair(raw, field.name)
        raise SettingsError(
            f"{source} is not a {'whole ' if kind == 'int' else ''}number. {_EXAMPLES[kind]}"
        ) from None


_EXAMPLES = {"int": "Write it like 20.", "float": "Write it like 30 or 0.5, without a unit."}


def _pair(raw: RawValue, name: str) -> str:
    place = f" (in {raw.origin.place})" if raw.origin.place else ""
    return f"{raw.origin.name}={for_display(name, raw.text)}{place}"


def _settings(values: dict[str, Any], origins: Mapping[str, Origin]) -> Settings:
    grace = values.get("grace", DEFAULTS.grace)
    if isinstance(grace, (int, float)) and grace > 0:
        for name in RESERVES:
            values.setdefault(name, min(getattr(DEFAULTS, name), grace / 4))
    try:
        return Settings(**values)
    except InvalidSettings as error:
        chosen = [
            (name, origins[name])
            for name in error.names
            if origins[name].kind not in (Kind.KEYWORD, Kind.DEFAULT)
        ]
        from_where = "; ".join(f"{name} is from {origin}" for name, origin in chosen)
        raise SettingsError(f"{error} Here {from_where}." if chosen else str(error)) from None
