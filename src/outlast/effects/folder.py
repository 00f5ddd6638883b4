"""A folder in which files are replaced whole, and put back: what `write_file` is made of.

Beside the files is a folder `.outlast` with, for each write (by its key):

    lock          taken (flock) from the comparison of fences to the end of the rename
    N-K.json      what is known of the write K to the file N: a Note, itself replaced whole
    N-K.tmp.R     the new content on its way; one name an attempt
    N-K.kept      what was there before: another name (a hard link) of the old file

The order of a write, each line durable before the next:

    1. the content, in its .tmp                          death: it is not there; nobody looks at a .tmp
    2. (lock) what was there before, as .kept
    3. the note: this fence, this .tmp, what was before  death: its .tmp exists still, so it did not happen
    4. rename .tmp to the file                           death: the .tmp of the note is gone, so it happened
    5. sync the folder (unlock)

So the note and the .tmp together always say whether the write happened, whatever others have done to the file since.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from outlast.errors import StaleFence

try:
    import fcntl
except ImportError:  # Windows: writers are not kept apart there
    fcntl = None  # type: ignore[assignment]

OWN = ".outlast"
LOCK_SECONDS = 10.0
"""How long to wait for the lock. It is held for some milliseconds, unless its holder is stopped."""
KEPT_SECONDS = 7 * 86400.0
KEPT_MAX = 100
"""How long, and of how many writes to one file, notes and earlier versions are kept: after that a write cannot be undone."""
TIDY_SECONDS = 3600.0
_NOT_SUPPORTED = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


@dataclass(frozen=True)
class Note:
    """What is known of one write."""

    fence: int
    """The highest fence that has dealt with it: an older one is refused."""
    temp: str = ""
    """The .tmp of the last attempt."""
    sha256: str = ""
    had: bool = False
    """There was a file before: it is in .kept."""
    happened: bool = False
    """An earlier attempt had happened already, so .kept is what was before that one."""
    undone: bool = False


class Busy(OSError):
    """Another process has the lock and does not let it go."""


class Folder:
    """The folder of one file, as one write sees it. Every method but `content` is for the holder of the lock."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.folder, self.own = path, path.parent, path.parent / OWN
        self.name = hashlib.blake2b(os.fsencode(path.name), digest_size=8).hexdigest()
        self.stem = f"{self.name}-{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}"

    # -- the lock

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        fd = os.open(self.own / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock(fd, time.monotonic() + LOCK_SECONDS)
            try:
                yield
            finally:
                if fcntl is not None:  # said, not left to close(): a forked child has the descriptor too
                    fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            os.close(fd)

    def _lock(self, fd: int, deadline: float) -> None:
        while fcntl is not None:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Busy(
                        errno.EAGAIN,
                        "another process holds this lock for too long: is one of the workers stopped?",
                        str(self.own / "lock"),
                    ) from None
                time.sleep(0.005)
            else:
                return

    # -- a write, in its order

    def prepare(self) -> None:
        """Have the folder `.outlast`, for everybody who may write here."""
        try:
            self.own.mkdir()
        except FileExistsError:
            return
        self.own.chmod(stat.S_IMODE(self.folder.stat().st_mode))
        sync_folder(self.folder)

    def content(self, data: bytes, mode: int | None) -> Path:
        """1: the new content, in a file of its own, which has the permissions of the old one unless told."""
        temp = self.own / f"{self.stem}.tmp.{secrets.token_hex(8)}"
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                if mode is None:
                    with contextlib.suppress(FileNotFoundError):
                        mode = stat.S_IMODE(self.path.stat().st_mode)
                if mode is not None:
                    temp.chmod(mode)
                os.fsync(file.fileno())
        except BaseException:
            temp.unlink(missing_ok=True)
            raise
        return temp

    def announce(self, temp: Path, sha256: str, fence: int) -> None:
        """2 and 3: keep what is there, say what will be. What an earlier attempt has left goes."""
        before = self.note(fence)
        happened = before is not None and self.happened(before)
        had = before.had if before is not None and happened else self._keep()
        self.write(Note(fence, temp.name, sha256, had, happened))
        if before is not None and before.temp:
            (self.own / before.temp).unlink(missing_ok=True)

    def give_up(self, temp: Path) -> None:
        """Remove the content that will not be needed, but not while a note names it: its being gone would mean that it was renamed."""
        note = self._read()
        if note is not None and note.temp == temp.name:
            self.write(replace(note, temp=""))
        temp.unlink(missing_ok=True)

    def replace(self, temp: Path) -> None:
        """4 and 5."""
        temp.replace(self.path)
        sync_folder(self.folder)

    def put_back(self, note: Note, fence: int) -> None:
        """Undo a write that happened: what was there before is there again, unless somebody else has written since."""
        if self.happened(note) and self.sha256() == note.sha256:
            if not note.had:
                self.path.unlink()
            elif self._kept.exists():  # else it is back already, and was the same
                self._kept.replace(self.path)
            sync_folder(self.folder)
        self._kept.unlink(missing_ok=True)
        self.write(replace(note, fence=fence, undone=True))

    def happened(self, note: Note) -> bool:
        """Whether the write has taken place, and was not undone; if so it is durable when this returns."""
        renamed = note.happened or (note.temp != "" and not (self.own / note.temp).exists())
        if not renamed or note.undone:
            return False
        sync_folder(self.folder)  # whoever renamed may have died before this
        return True

    def sha256(self) -> str | None:
        """Of the file as it is. None if there is none."""
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def _keep(self) -> bool:
        """Give what is there another name. False if nothing is."""
        self._kept.unlink(missing_ok=True)
        try:
            os.link(self.path, self._kept)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            shutil.copy2(self.path, self._kept)
            with self._kept.open("rb") as file:
                os.fsync(file.fileno())
        return True

    @property
    def _kept(self) -> Path:
        return self.own / f"{self.stem}.kept"

    # -- notes

    def note(self, fence: int) -> Note | None:
        """What is known of this write. StaleFence if a younger claim has dealt with it."""
        note = self._read()
        if note is not None and note.fence > fence:
            raise StaleFence(str(self.path), fence, note.fence)
        return note

    def _read(self) -> Note | None:
        try:
            return Note(**json.loads((self.own / f"{self.stem}.json").read_bytes()))
        except FileNotFoundError:
            return None

    def write(self, note: Note) -> None:
        """Durable when this returns, and with it what else has changed in `.outlast`."""
        fresh = self.own / f"{self.stem}.new"
        with fresh.open("wb") as file:
            file.write(json.dumps(asdict(note)).encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.own / f"{self.stem}.json")
        sync_folder(self.own)

    def tidy(self) -> None:
        """At one write in thirty, and hourly: remove what is too old, or too much of one file."""
        lock = self.own / "lock"
        with contextlib.suppress(OSError):  # the write has happened: nothing here may say otherwise
            if lock.stat().st_mtime < time.time() - TIDY_SECONDS or not secrets.randbelow(30):
                os.utime(lock)
                tidy(self.own)


def tidy(own: Path) -> None:
    """For the holder of the lock. A note goes first, then what it speaks of: without a note neither means anything."""
    writes: dict[str, list[tuple[float, str]]] = defaultdict(list)
    rest: list[str] = []
    for entry in os.scandir(own):
        name, _, kind = entry.name.partition("-")
        if kind.endswith(".json"):
            writes[name].append((entry.stat().st_mtime, entry.name.removesuffix(".json")))
        elif kind and entry.stat().st_mtime < time.time() - TIDY_SECONDS:
            rest.append(entry.name)
    known: set[str] = set()
    for of_one in writes.values():
        for number, (at, stem) in enumerate(sorted(of_one, reverse=True)):
            if number < KEPT_MAX and at > time.time() - KEPT_SECONDS:
                known.add(stem)
            else:
                (own / f"{stem}.json").unlink(missing_ok=True)
                (own / f"{stem}.kept").unlink(missing_ok=True)
    for left in rest:
        if left.partition(".")[0] not in known:
            (own / left).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Have its names on the disk. Windows has no such call, and does it by itself."""
    if os.name == "nt":
        return
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
