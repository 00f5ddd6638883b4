"""The journals on the disk: what was committed is added to them, they are synced bit by bit, and rewritten when they hold mostly what is no more."""

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
"""A file that is shorter is not rewritten."""
REWRITE_RATIO = 4
"""How many times as long as after it was last rewritten a file must be."""


class Journals:
    def __init__(
        self, folder: Path, lengths: dict[str, Length], row_files: dict[Owner, str]
    ) -> None:
        self.folder, self.lengths, self.row_files = folder, lengths, row_files
        self._short: dict[str, int] = {}
        """How long files were when they were last rewritten."""
        self.unsynced: dict[str, None] = {}
        """Files and folders that were changed since the log began anew, in order."""
        self._root = str(folder)
        self._folders: set[str] = set()
        """Those that are surely there."""

    def settle(self, batch: Batch) -> None:
        """What a commit says of files and homes is so. No file is touched."""
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
        """Add what a commit says to the files. It is in the log: none of it must be durable."""
        for part in batch.parts:
            if part.lines is None:
                self._remove(part.file)
                continue
            if not part.start:
                self._make_room(part.file)
            disk.write_at(f"{self._root}/{part.file}", part.start, part.data)
            self.unsynced[part.file] = None

    def restore(self, tails: dict[str, Tail]) -> None:
        """Make the files what the log says, durably, whatever has become of them since it began."""
        for file, tail in tails.items():
            if tail.data is None:
                self._remove(file)
            else:
                self._make_room(file)
                disk.end_with(self.folder / file, tail.start, tail.data)
        self.sync(list(self.unsynced))

    def sync(self, names: Iterable[str]) -> None:
        """Files, and folders for the names in them."""
        for name in names:
            disk.sync_path(self.folder / name)
            self.unsynced.pop(name, None)

    def _remove(self, file: str) -> None:
        disk.remove(self.folder / file)
        self.unsynced[_folder_of(file)] = None

    def _make_room(self, file: str) -> None:
        """The folders of a new file. Names in a folder are not durable before it is synced."""
        folder = _folder_of(file)
        self.unsynced[folder] = None
        if folder != "." and folder not in self._folders:
            self._make_room(folder)
            disk.make_folder(self.folder / folder)
            refuse_link(self.folder / folder)
            self._folders.add(folder)

    # -- rewriting

    def too_long(self, batch: Batch) -> list[str]:
        """Of the files that a commit has made longer. The journal of a run is its history, and stays as it is."""
        return [
            file
            for file, length in batch.lengths.items()
            if length is not None
            and not (file.startswith("runs/") and file.count("/") > 1)
            and length.size > max(REWRITE_BYTES_MIN, REWRITE_RATIO * self._short.get(file, 0))
        ]

    def rewrite(self, file: str, composer: Composer, commit: int, at: float) -> None:
        """Whole and durable before the log says anything more of it."""
        data, length = composer.rewritten(file, commit, at)
        self._short[file] = length.size
        folder = _folder_of(file)
        self.unsynced[folder] = (
            None  # until its new name is durable: who mends must not empty the log before that
        )
        disk.replace(self.folder / file, data)
        self.unsynced.pop(folder)
        self.lengths[file] = length
        log.debug("%s was rewritten: %d bytes", self.folder / file, length.size)

    def tidy(self) -> None:
        """Remove what nobody needs: files that a death left unfinished, and shared files that nobody lives in. The log must be empty."""
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
