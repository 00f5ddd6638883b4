"""Read files of secrets: one value per file, as Docker, Kubernetes and systemd provide them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from outlast.errors import SettingsError
from outlast.settings.origin import Kind, Origin, RawValue
from outlast.settings.variables import PREFIX, SECRETS_DIR, nearest

log = logging.getLogger("outlast.settings")

DEFAULT_FOLDER = Path("/run/secrets")
SIZE_MAX = 65_536
"""The size limit of one file, in bytes."""


def of_files(
    variables: Mapping[str, RawValue], asked: Collection[str], known: Collection[str]
) -> tuple[Path | None, dict[str, RawValue]]:
    """Return the secrets folder and the values of the files of secrets.

    Values come from files in the folder and from those that OUTLAST_…_FILE variables name. In the
    folder, only files called outlast_<setting> or OUTLAST_<SETTING> are read, and only for the
    settings in `asked`. Other files are ignored, but a name that begins with outlast_ must be a
    setting's.
    """
    folder = _folder(variables)
    if folder is not None:
        _check_names(folder, known, asked_for=SECRETS_DIR in variables)
    found: dict[str, RawValue] = {}
    for name in asked:
        variable = f"{PREFIX}{name.upper()}"
        pointer = variables.get(f"{variable}_FILE")
        if pointer is not None and pointer.text:
            if variable in variables and variables[variable].text:
                raise SettingsError(
                    f"{variables[variable].origin} and {pointer.origin} are both set. Remove one "
                    "of them."
                )
            origin = Origin(Kind.SECRET_FILE, pointer.text, str(pointer.origin))
            found[name] = RawValue(
                _content(Path(pointer.text), f"{pointer.origin} names it"), origin
            )
        elif folder is not None and (path := _file(folder, variable)) is not None:
            found[name] = RawValue(
                _content(path, f"it is in {folder}"), Origin(Kind.SECRET_FILE, str(path))
            )
    return folder, found


def _folder(variables: Mapping[str, RawValue]) -> Path | None:
    raw = variables.get(SECRETS_DIR)
    if raw is None:
        try:
            return DEFAULT_FOLDER if DEFAULT_FOLDER.is_dir() else None
        except OSError:
            return None
    if not raw.text:
        return None
    folder = Path(raw.text)
    try:
        if folder.is_dir():
            return folder
        why = "no such folder"
    except OSError as error:
        why = error.strerror or str(error)
    raise SettingsError(
        f"{raw.origin} names {folder}: {why}. Name the folder of the secrets' files, or set it to "
        "nothing."
    )


def _check_names(folder: Path, known: Collection[str], *, asked_for: bool) -> None:
    """Raise SettingsError for a misnamed file, or a folder that cannot be listed.

    Either would silently mean the default. In a folder that no setting names, other programs may
    keep files, so there it is only a warning.
    """
    names = {f"{PREFIX}{name.upper()}" for name in known}
    try:
        there = sorted(path.name for path in folder.iterdir())
        unknown = [
            name for name in there if name.upper().startswith(PREFIX) and name.upper() not in names
        ]
    except OSError as error:
        wrong = f"{folder}: the files of secrets cannot be listed ({error.strerror or error})."
    else:
        if not unknown:
            return
        hint = nearest([name.upper() for name in unknown], names)
        wrong = f"{', '.join(unknown)} in {folder}: no such setting. {hint}"
    if asked_for:
        raise SettingsError(wrong)
    log.warning("%s", wrong)


def _file(folder: Path, variable: str) -> Path | None:
    for path in (folder / variable.lower(), folder / variable):
        try:
            if path.is_file():
                return path
        except OSError:
            # The folder belongs to other programs.
            continue
    return None


def _content(path: Path, why: str) -> str:
    """Return the file's content without its trailing newline.

    No error message contains the content.
    """
    try:
        if path.exists() and not path.is_file():
            raise SettingsError(
                f"{path} is not a regular file; {why}. It is read more than once, so it cannot "
                "be a pipe."
            )
        with path.open("rb") as file:
            content = file.read(SIZE_MAX + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror or error}); {why}.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8 text; {why}.") from None
    if len(content) > SIZE_MAX:
        raise SettingsError(
            f"{path} has more than {SIZE_MAX:,} bytes, too many for a setting; {why}."
        )
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip():
        raise SettingsError(f"{path} is empty; {why}. Write the value into it, or remove it.")
    return text
