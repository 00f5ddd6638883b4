"""Read the address of a file store."""

from __future__ import annotations

import os
from urllib.parse import unquote

from outlast.errors import SettingsError
from outlast.settings.redaction import masked
from outlast.store.address import parts_of
from outlast.store.paths import check_folder


def path_of(address: str) -> str:
    """Return the path of the store's folder. Raise SettingsError for a bad address."""
    url, parts = masked(address), parts_of(address)
    if parts.netloc not in ("", "localhost"):
        raise SettingsError(
            f"{url!r} names a host. The folder of a file store is written "
            "file:///data/outlast, or file:name if relative."
        )
    if parts.query or parts.fragment:
        raise SettingsError(
            f"{url!r}: a file store has no options. A ? or # in its path is written %3F or %23."
        )
    path = unquote(parts.path)
    if not path or path == "/" or "\0" in path:
        raise SettingsError(f"{url!r} has no usable path: file:///data/outlast is a folder.")
    if os.name == "nt" and path[2:3] == ":":
        path = path[1:]
    check_folder(path)
    return path
