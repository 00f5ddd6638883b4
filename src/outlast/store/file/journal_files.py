"""Keep the journals on the disk.

Add what was committed, sync the files in small portions, and rewrite a file that has mostly
outdated rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from outlast.store.file import disk
from outlast.store.file.batch import Batch, Composer, Length
from outlast.store.file.load import Tail
from outlast.store.file.row_files import STORE, Owner
from outlast.store.file_trust import refuse_link

log = logging.getLogger("outlast.store")

REWRITE_BYTES_MIN = 256 * 1024
"""Bytes. A shorter file is not rewritten."""
REWRITE_RATIO = 4
"""A file is rewritten when it is this many times as long as after the last rewrite."""


class Journals:
    def __init__(
        self, folder: Path, lengths: dict[str, Length], row_files: dict[Owner, str]
    ) -> None:
        self.folder, self.lengths, self.row_files = folder, lengths, row_files
        self._short: dict[str, int] = {}
        """The lengths of files after they were last rewritten."""
        self.unsynced: dict[str, None] = {}
        """Files and folders that changed since the current log began, in order."""
        self._root = str(folder)
        self._folders: set[str] = set()
        """Folders that are known to exist."""

    def settle(self, batch: Batch) -> None:
        """Apply a commit to the lengths and the rows' files in memory. Touch no file."""
        for file, length in batch.lengths.items():
            if length is None:
                self.lengths.pop(file, None)
            else:
                self.lengths[file] = length
        for owner, home in batch.row_files.items():
            if home is None:
                self.row_files.pop(owner, None)
            else:
                self.row_files[owner] = home

    def place(self, batch: Batch) -> None:
        """Add a commit's lines to the files.

        They need not be durable, because the log has them.
        """
        for part in batch.parts:
            if part.lines is None:
                self._remove(part.file)
                continue
            if not part.start:
                self._make_parents(part.file)
            disk.write_at(f"{self._root}/{part.file}", part.start, part.data)
            self.unsynced[part.file] = None

    def restore(self, tails: dict[str, Tail]) -> None:
        """Bring the files, durably, to the state that the log describes, whatever state they are
        in.
        """
        for file, tail in tails.items():
            if tail.data is None:
                self._remove(file)
            else:
                self._make_parents(file)
                disk.end_with(self.folder / file, tail.start, tail.data)
        self.sync(list(self.unsynced))

    def sync(self, names: Iterable[str]) -> None:
        """Sync files, and folders for the names in them."""
        for name in names:
            disk.sync_path(self.folder / name)
            self.unsynced.pop(name, None)

    def _remove(self, file: str) -> None:
        disk.remove(self.folder / file)
        self.unsynced[_folder_of(file)] = None

    def _make_parents(self, file: str) -> None:
        """Create the folders of a new file. A name in a folder is durable only after the folder is
        synced.
        """
        folder = _folder_of(file)
        self.unsynced[folder] = None
        if folder != "." and folder not in self._folders:
            self._make_parents(folder)
            disk.make_folder(self.folder / folder)
            refuse_link(self.folder / folder)
            self._folders.add(folder)

    # -- rewriting

    def too_long(self, batch: Batch) -> list[str]:
        """Return the files that a commit made too long.

        The journal of a run is its history and is never rewritten.
        """
        return [
            file
            for file, length in batch.lengths.items()
            if length is not None
            and not (file.startswith("runs/") and file.count("/") > 1)
            and length.size > max(REWRITE_BYTES_MIN, REWRITE_RATIO * self._short.get(file, 0))
        ]

    def rewrite(self, file: str, composer: Composer, commit: int, at: float) -> None:
        """Rewrite a file. It is complete and durable before the log mentions it again."""
        data, length = composer.rewritten(file, commit, at)
        self._short[file] = length.size
        folder = _folder_of(file)
        # A repair must not empty the log before the new name is durable.
        self.unsynced[folder] = None
        disk.replace(self.folder / file, data)
        self.unsynced.pop(folder)
        self.lengths[file] = length
        log.debug("%s was rewritten: %d bytes.", self.folder / file, length.size)

    def tidy(self) -> None:
        """Remove files that a crash left incomplete, and shared files without rows. The log must be
        empty.
        """
        for top, deep in ((".", 0), ("runs", 1), ("sessions", 2)):
            for new in (self.folder / top).glob("*/" * max(deep - 1, 0) + f"*{disk.NEW}"):
                disk.remove(new)
        lived_in = {STORE, *self.row_files.values()}
        for file in [file for file in self.lengths if file not in lived_in]:
            disk.remove(self.folder / file)
            del self.lengths[file]
            disk.sync_path((self.folder / file).parent)


def _folder_of(file: str) -> str:
    return file.rpartition("/")[0] or "."
