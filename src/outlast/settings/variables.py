"""Variables named OUTLAST_…: those of the environment, and those of a .env file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from outlast.errors import SettingsError
from outlast.settings.origin import Kind, Origin, Said

PREFIX = "OUTLAST_"
ENV_FILE = "OUTLAST_ENV_FILE"
SECRETS_DIR = "OUTLAST_SECRETS_DIR"
DEFAULT_ENV_FILE = ".env"
NO_FILES = {ENV_FILE: "", SECRETS_DIR: ""}
"""An environment in which no file of settings is read: for settings that are not of this machine."""

_TESTS = "OUTLAST_TEST_"
"""For Outlast's own tests and its pytest plugin: never settings."""
_LINK = re.compile(
    r"OUTLAST_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)"
)
_LINK_PORT = re.compile(r"OUTLAST_(?:\w+_)?PORT")
"""What Kubernetes puts into every pod for a Service called outlast, or outlast-…."""


def of_environment(environ: Mapping[str, str]) -> dict[str, Said]:
    """By their names, in upper case; those of Kubernetes and of the tests left out."""
    found: dict[str, Said] = {}
    for given in sorted(environ):  # upper case comes first, and stays
        name = given.upper()
        if name.startswith(PREFIX) and name not in found and not _is_exempt(name, environ[given]):
            found[name] = Said(environ[given], Origin(Kind.ENVIRONMENT, name))
    return found


def of_env_file(set_here: Mapping[str, Said], known: Collection[str]) -> tuple[Path | None, dict[str, Said]]:
    """The .env file that was read, and its OUTLAST_… variables. All others in it are somebody else's.

    It is the one in the working folder (never one above it), or the one that OUTLAST_ENV_FILE names, which must be there.
    """
    said = set_here.get(ENV_FILE)
    chosen = None if said is None else said.text
    if chosen == "":
        return None, {}
    path = Path(chosen or DEFAULT_ENV_FILE)
    try:
        if not path.is_file():
            if chosen is None:  # or it is a virtual environment, which may be called .env too
                return None, {}
            if path.exists():
                raise SettingsError(
                    f"{ENV_FILE} names {path}, which is no plain file: it is read more than once, so a pipe cannot serve."
                )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        how = f"{ENV_FILE} names it" if chosen else "it is read where it is there"
        raise SettingsError(
            f"{path} cannot be read ({error.strerror or error}); {how}. Mend it, or set {ENV_FILE} to another file, or to nothing."
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(
            f"{path} is not UTF-8 text. Write it anew, or set {ENV_FILE} to nothing."
        ) from None
    if PREFIX not in text.upper():
        return path, {}  # and the library that reads it need not be loaded
    return path, _read(path, text, known)


def _read(path: Path, text: str, known: Collection[str]) -> dict[str, Said]:
    from io import StringIO

    from dotenv.parser import parse_stream
    from pydantic_settings import BaseSettings, DotEnvSettingsSource

    for line in parse_stream(StringIO(text)):
        if line.error and PREFIX in line.original.string.upper():
            raise SettingsError(
                f"{path}, line {line.original.line}: this is not NAME=value. Is a quote missing?"
            )
    variables = DotEnvSettingsSource(
        BaseSettings, env_file=path, env_file_encoding="utf-8-sig", case_sensitive=True
    ).env_vars
    found: dict[str, Said] = {}
    for given in sorted(variables):
        name, value = given.upper(), variables[given]
        if not name.startswith(PREFIX) or name in found or name.startswith(_TESTS):
            continue
        if name == ENV_FILE:
            raise SettingsError(f"{ENV_FILE} in {path} comes too late: it belongs in the environment.")
        if value is None:
            raise SettingsError(f"{name} in {path} has no value: write {name}=…")
        found[name] = Said(value, Origin(Kind.ENV_FILE, name, str(path)))
    check_names(found, known)
    return found


def check_names(found: Mapping[str, Said], known: Collection[str]) -> None:
    """SettingsError for variables that name no setting: a typing error would otherwise mean the default, silently."""
    names = {f"{PREFIX}{name.upper()}" for name in known} | {ENV_FILE, SECRETS_DIR}
    unknown = {
        name: said
        for name, said in found.items()
        if name not in names and name.removesuffix("_FILE") not in names
    }
    if unknown:
        named = ", ".join(str(said.origin) for _, said in sorted(unknown.items()))
        raise SettingsError(f"{named}: no such setting. {nearest(unknown, names)}")


def nearest(unknown: Iterable[str], names: Collection[str]) -> str:
    """What may have been meant; otherwise everything there is."""
    import difflib

    plain = {name.removeprefix(PREFIX): name for name in names}  # what all have alike says nothing
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
    # OUTLAST_HTTP_PORT=8080 is somebody's mistake.
    return _LINK_PORT.fullmatch(name) is not None and re.match(r"(?:tcp|udp|sctp)://", value) is not None
