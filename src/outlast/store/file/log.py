"""Write and read the log: one line per commit.

The line has every line that the commit adds to the journals, and where. A commit is its line, so it
is complete or absent, whatever it changed.

    {"commit": 17, "at": 1700000000.5, "parts": [
        {"file": "runs/000/000012.jsonl", "from": 812, "lines": [{…}]}], "crc": "…"}

(It is one line in the file.) `commits.jsonl` takes new commits. A long one becomes
`commits.old.jsonl`, and a new one begins. The old one is removed when every journal that it
mentions is on the disk. On opening, the store cuts each journal where the log first mentions it,
and writes it again from there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from outlast.errors import StoreBroken
from outlast.store.file import disk
from outlast.store.file.line_format import Damaged, Scanner, check_crc, number, quote, with_crc
from outlast.store.file_trust import open_plain

NAME, OLD = "commits.jsonl", "commits.old.jsonl"


class Part(NamedTuple):
    """What a commit does to one file."""

    commit: int
    file: str
    start: int
    """The length of the file before the commit."""
    lines: tuple[bytes, ...] | None
    """The lines, without line breaks. None means that the file is removed."""

    @property
    def data(self) -> bytes:
        return b"".join([line + b"\n" for line in self.lines or ()])


class Sum(NamedTuple):
    """The number of journals, and their total length."""

    files: int
    size: int


class History(NamedTuple):
    parts: list[Part]
    commit: int
    """The number of the last commit, 0 if there is none."""
    begun: Sum | None
    """The journals at the start of the log, before all parts. None if the log does not say."""
    torn: int
    """Bytes at the end that are half a line, which was never acknowledged."""


def commit_line(commit: int, at: float, parts: Sequence[Part]) -> bytes:
    return (
        with_crc(
            f'{{"commit": {commit}, "at": {number(at)}, "parts": '
            f"[{', '.join(map(_part_text, parts))}]"
        )
        + b"\n"
    )


def _part_text(part: Part) -> str:
    if part.lines is None:
        return f'{{"file": {quote(part.file)}, "removed": true}}'
    lines = ", ".join([line.decode() for line in part.lines])
    return f'{{"file": {quote(part.file)}, "from": {part.start}, "lines": [{lines}]}}'


class Log:
    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self._old = folder, folder / NAME, folder / OLD
        self._name = str(self.path)
        self.size = 0
        self.clean = True
        """False while half a line may be at the end of the file."""
        self._fd = -1

    def open(self) -> None:
        """Open the file to append to it."""
        self.close()
        self._fd = open_plain(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | disk.FLAGS)
        self.size, self.clean = os.fstat(self._fd).st_size, True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def is_there(self) -> bool:
        """Return False if the file was removed or replaced."""
        return disk.is_same(self._fd, self._name)

    def write(self, line: bytes) -> None:
        """Write a line, not durable yet.

        On OSError nothing of it is left, unless cutting it off fails too: then `clean` is False.
        """
        try:
            disk.write(self._fd, line)
        except OSError:
            self.clean = False
            os.ftruncate(self._fd, self.size)
            self.clean = True
            raise

    def sync(self) -> None:
        disk.sync(self._fd)

    def grown(self, size: int) -> None:
        """Count the bytes just written as a commit."""
        self.size += size

    def cut(self) -> None:
        """Cut off, durably, what was written since the last commit, synced or not.

        The length decides what is a commit.
        """
        os.ftruncate(self._fd, self.size)
        self.sync()
        self.clean = True

    # -- the current and the old log

    @property
    def has_old(self) -> bool:
        return self._old.exists()

    def turn(self) -> None:
        """Make this log the old one, and begin a new one. There must be no old log."""
        self.close()
        os.replace(self.path, self._old)  # noqa: PTH105
        self.open()
        disk.sync_path(self.folder)

    def drop_old(self) -> None:
        """Remove the old log. Every journal that it mentions must be on the disk."""
        disk.remove(self._old)
        disk.sync_path(self.folder)

    def empty(self) -> None:
        """Remove the old log and empty the current one. Every journal that they mention must be on
        the disk.

        The old log goes first, and durably: alone it would pass for the whole history.
        """
        if self.has_old:
            self.drop_old()
        os.ftruncate(self._fd, 0)
        self.size = 0
        self.sync()

    # -- reading

    def read(self, upto: int | None = None) -> History:
        """Read the whole log, or up to a commit.

        Raise StoreBroken for a damaged line that may have been acknowledged.
        """
        parts: list[Part] = []
        last, begun, torn = 0, None, 0
        for path in (self._old, self.path):
            try:
                data = disk.read(path)
            except FileNotFoundError:
                continue
            whole, torn = _whole(path, data, may_be_torn=path is self.path)
            for place, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
                try:
                    commit, found = _parse(check_crc(line))
                    if last and commit != last + (not isinstance(found, Sum)):
                        raise Damaged(f"it is commit {commit}, after {last}")
                except (Damaged, UnicodeDecodeError) as error:
                    raise broken(path, place, error) from None
                if upto is not None and commit > upto:
                    torn = 0
                    break
                last = commit
                if not isinstance(found, Sum):
                    parts += found
                elif not parts:
                    begun = found
        return History(parts, last, begun, torn)


def _whole(path: Path, data: bytes, *, may_be_torn: bool) -> tuple[int, int]:
    """Return how many bytes are whole lines, and how many after them are a torn one.

    A torn line lacks its end. After a power cut it may have its end and lack what comes before:
    then there are zeros, which no line contains. Any other bad line was once whole and may have
    been acknowledged, so it counts as damaged.
    """
    whole = data.rfind(b"\n") + 1
    if may_be_torn and whole == len(data) and whole:
        last = data.rfind(b"\n", 0, whole - 1) + 1
        if b"\0" in data[last:whole]:
            whole = last
    torn = len(data) - whole
    if torn and not may_be_torn:
        raise broken(path, data.count(b"\n") + 1, "its end is missing")
    return whole, torn


def _parse(body: str) -> tuple[int, list[Part] | Sum]:
    scan = Scanner(body)
    scan.expect('{"commit": ')
    commit = scan.integer()
    scan.expect(', "at": ')
    scan.value()
    if scan.take(', "journals": {"files": '):
        files = scan.integer()
        scan.expect(', "size": ')
        there = Sum(files, scan.integer())
        scan.expect("}")
        scan.end()
        return commit, there
    scan.expect(', "parts": [')
    parts: list[Part] = []
    while not scan.take("]"):
        if parts:
            scan.expect(", ")
        parts.append(_parse_part(scan, commit))
    scan.end()
    return commit, parts


def _parse_part(scan: Scanner, commit: int) -> Part:
    scan.expect('{"file": ')
    file = scan.text()
    if scan.take(', "removed": true}'):
        return Part(commit, file, 0, None)
    scan.expect(', "from": ')
    start = scan.integer()
    scan.expect(', "lines": [')
    lines: list[bytes] = []
    while not scan.take("]"):
        if lines:
            scan.expect(", ")
        lines.append(scan.raw().encode())
    scan.expect("}")
    return Part(commit, file, start, tuple(lines))


def first_line(commit: int, at: float, there: Sum) -> bytes:
    """Return the first line of a log: the state of the journals at that time.

    After an orderly close the log has no other line.
    """
    journals = f'{{"files": {there.files}, "size": {there.size}}}'
    return with_crc(f'{{"commit": {commit}, "at": {number(at)}, "journals": {journals}') + b"\n"


def broken(path: Path, line: int, why: object) -> StoreBroken:
    return StoreBroken(
        f"{path}, line {line}: this line is damaged ({why}). Nothing was changed. Restore the "
        "folder from a copy."
    )
