"""Read OUTLAST_… variables from the environment and from a .env file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from outlast.errors import SettingsError
from outlast.settings.origin import Kind, Origin, RawValue

PREFIX = "OUTLAST_"
ENV_FILE = "OUTLAST_ENV_FILE"
SECRETS_DIR = "OUTLAST_SECRETS_DIR"
DEFAULT_ENV_FILE = ".env"
NO_FILES = {ENV_FILE: "", SECRETS_DIR: ""}
"""An environment in which no file of settings is read, for settings that are not of this machine.
"""

_TESTS = "OUTLAST_TEST_"
"""The prefix of variables for Outlast's own tests and its pytest plugin, which are never settings.
"""
_LINK = re.compile(
    r"OUTLAST_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)"
)
_LINK_PORT = re.compile(r"OUTLAST_(?:\w+_)?PORT")
"""Variables that Kubernetes sets in every pod for a Service called outlast, or outlast-…."""

_REFERENCE = re.compile(r"\$\{\w+")
"""A reference to another variable, as in ${HOME} or ${HOME:-/root}."""


def of_environment(environ: Mapping[str, str]) -> dict[str, RawValue]:
    """Return the OUTLAST_… variables by upper-case name.

    Those of Kubernetes and of the tests are left out.
    """
    found: dict[str, RawValue] = {}
    # An upper-case name sorts first and takes precedence.
    for given in sorted(environ):
        name = given.upper()
        if name.startswith(PREFIX) and name not in found and not _is_exempt(name, environ[given]):
            found[name] = RawValue(environ[given], Origin(Kind.ENVIRONMENT, name))
    return found


def of_env_file(
    set_here: Mapping[str, RawValue], known: Collection[str]
) -> tuple[Path | None, dict[str, RawValue]]:
    """Return the .env file that was read, and its OUTLAST_… variables. Other variables are ignored.

    The file is the one in the working folder (never one above it), or the one that OUTLAST_ENV_FILE
    names, which must exist. An unnamed file may have come with the folder, so its variables may not
    point at other files. Raise SettingsError if they do.
    """
    raw = set_here.get(ENV_FILE)
    chosen = None if raw is None else raw.text
    if chosen == "":
        return None, {}
    path = Path(chosen or DEFAULT_ENV_FILE)
    try:
        if not path.is_file():
            # It may also be a virtual environment that is called .env.
            if chosen is None:
                return None, {}
            if path.exists():
                raise SettingsError(
                    f"{ENV_FILE} names {path}, which is not a regular file. It is read more than "
                    "once, so it cannot be a pipe."
                )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        how = f"{ENV_FILE} names it" if chosen else "Outlast reads it if it exists"
        raise SettingsError(
            f"{path} cannot be read ({error.strerror or error}); {how}. Fix it, or set {ENV_FILE} "
            "to another file, or to nothing."
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(
            f"{path} is not UTF-8 text. Save it as UTF-8, or set {ENV_FILE} to nothing."
        ) from None
    if PREFIX not in text.upper():
        # The library that parses it need not be loaded.
        return path, {}
    found = _read(path, text, known)
    if chosen is None:
        _refuse_pointers(found, path)
    return path, found


def _refuse_pointers(found: Mapping[str, RawValue], path: Path) -> None:
    pointers = sorted(name for name in found if name == SECRETS_DIR or name.endswith("_FILE"))
    if pointers:
        raise SettingsError(
            f"{', '.join(pointers)} in {path} would read other files. {trust_advice(path)}"
        )


def trust_advice(path: Path | str) -> str:
    """Return what to do about a setting that an unnamed .env file may not have."""
    return (
        f"Outlast found this {path} in the working folder, and a cloned folder may contain one. "
        f"If you trust it, set {ENV_FILE}={path}; if not, remove it, or set {ENV_FILE} to nothing."
    )


def names_env_file(set_here: Mapping[str, RawValue]) -> bool:
    """Return whether the environment names the .env file, which makes it trusted."""
    raw = set_here.get(ENV_FILE)
    return raw is not None and bool(raw.text)


def is_below_working_folder(address: str) -> bool:
    """Return whether an address is a local store below the working folder, or in memory."""
    scheme = address.partition(":")[0].lower()
    if scheme == "memory":
        return True
    if scheme not in ("sqlite", "file"):
        return False
    try:
        parts = urlsplit(address)
        path = unquote(parts.path)
        # A sqlite: path begins after the third slash, a file: path with it.
        resolved = Path(path[1:] if scheme == "sqlite" else path).resolve()
    except (ValueError, OSError, RuntimeError):
        return False
    return not parts.netloc and resolved.is_relative_to(Path.cwd().resolve())


def _read(path: Path, text: str, known: Collection[str]) -> dict[str, RawValue]:
    from io import StringIO

    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    for line in parse_stream(StringIO(text)):
        if line.error and PREFIX in line.original.string.upper():
            raise SettingsError(
                f"{path}, line {line.original.line}: this is not NAME=value. Is a quote missing?"
            )
    # Expanding ${NAME} would let the file send any environment variable to the server that it
    # names.
    variables = dotenv_values(stream=StringIO(text), interpolate=False)
    found: dict[str, RawValue] = {}
    for given in sorted(variables):
        name = given.upper()
        value = variables[given]
        if not name.startswith(PREFIX) or name in found or name.startswith(_TESTS):
            continue
        if name == ENV_FILE:
            raise SettingsError(f"{ENV_FILE} in {path} has no effect. Set it in the environment.")
        if value is None:
            raise SettingsError(f"{name} in {path} has no value: write {name}=…")
        if (reference := _REFERENCE.search(value)) is not None:
            raise SettingsError(
                f"{name} in {path} refers to {reference[0]}}}. Outlast expands no variables in "
                "this file: "
                f"write the value out, or set {name} in the environment."
            )
        found[name] = RawValue(value, Origin(Kind.ENV_FILE, name, str(path)))
    check_names(found, known)
    return found


def check_names(found: Mapping[str, RawValue], known: Collection[str]) -> None:
    """Raise SettingsError for variables that name no setting.

    A typo would otherwise silently mean the default.
    """
    names = {f"{PREFIX}{name.upper()}" for name in known} | {ENV_FILE, SECRETS_DIR}
    unknown = {
        name: raw
        for name, raw in found.items()
        if name not in names and name.removesuffix("_FILE") not in names
    }
    if unknown:
        named = ", ".join(str(raw.origin) for _, raw in sorted(unknown.items()))
        raise SettingsError(f"{named}: no such setting. {nearest(unknown, names)}")


def nearest(unknown: Iterable[str], names: Collection[str]) -> str:
    """Return a hint with the closest known names, or with all of them if one has no close match."""
    import difflib

    # The common prefix would distort the comparison.
    plain = {name.removeprefix(PREFIX): name for name in names}
    meant = [name.removeprefix(PREFIX).removesuffix("_FILE") for name in sorted(unknown)]
    near = [
        difflib.get_close_matches(name, plain, 1, 0.75)
        or [known for known in plain if name.startswith(f"{known}_")]
        for name in meant
    ]
    if all(near):
        return "Did you mean " + ", ".join(dict.fromkeys(plain[found[0]] for found in near)) + "?"
    return f"Known: {', '.join(sorted(names))}."


def _is_exempt(name: str, value: str) -> bool:
    if name.startswith(_TESTS) or _LINK.fullmatch(name):
        return True
    # Without a protocol it is a mistake, such as OUTLAST_HTTP_PORT=8080.
    return (
        _LINK_PORT.fullmatch(name) is not None
        and re.match(r"(?:tcp|udp|sctp)://", value) is not None
    )
