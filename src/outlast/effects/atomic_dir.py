"""Replace files in a folder atomically, and restore them: the basis of `write_file`.

Beside the files is a folder `.outlast` with, for each write (by its key):

    lock          taken (flock) from the comparison of fences to the end of the rename
    N-K.json      the Note about the write K to the file N, itself replaced atomically
    N-K.tmp.R     the new content before the rename; one name per attempt
    N-K.kept      the previous content: another name (a hard link) of the old file
    N-K.new       the next note before its rename

The order of a write, each line durable before the next:

    1. the content, in its .tmp                 crash: it did not happen; nothing reads a .tmp
    2. (lock) the previous content, as .kept
    3. the note: fence, .tmp, what was before   crash: its .tmp still exists: it did not happen
    4. rename .tmp to the file                  crash: the .tmp of the note is gone: it happened
    5. sync the folder (unlock)

So the note and the .tmp together always say whether the write happened, whatever others have done
to the file since.

`.outlast` may have been planted. It is opened by its descriptor (see `outlast.effects.directory`)
and refused if it is a symbolic link, belongs to another user, or is writable by everybody. A file
in it is used only if it is a regular file of a trusted user with the expected name. No other user
can read the content until it has its final mode.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from outlast.effects.directory import Directory, Untrusted
from outlast.errors import StaleFence

try:
    import fcntl
except ImportError:
    # Windows: writers do not exclude each other there.
    fcntl = None  # type: ignore[assignment]

OWN = ".outlast"
LOCK_SECONDS = 10.0
"""How long to wait for the lock. It is held for some milliseconds, unless its holder is stopped."""
KEPT_SECONDS = 7 * 86400.0
KEPT_MAX = 100
"""How long, and for how many writes to one file, notes and earlier versions are kept. Older writes
cannot be compensated.
"""
TIDY_SECONDS = 3600.0
NOTE_BYTES_MAX = 4096
_NAME = re.compile(r"([0-9a-f]{16}-[0-9a-f]{32})\.(json|kept|new|tmp\.[0-9a-f]{16})", re.ASCII)
"""The files that belong to Outlast. No other file is removed."""
_NOT_SUPPORTED = {
    errno.EPERM,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.EMLINK,
    errno.EXDEV,
}


@dataclass(frozen=True)
class Note:
    """What is known about one write."""

    fence: int
    """The highest fence that has handled it. An older one is refused."""
    temp: str = ""
    """The .tmp of the last attempt."""
    sha256: str = ""
    had: bool = False
    """There was a file before. Its content is in .kept."""
    happened: bool = False
    """An earlier attempt had already happened, so .kept is the content from before that one."""
    undone: bool = False


class Busy(OSError):
    """Another process holds the lock for too long."""


class AtomicDir:
    """The folder of one file, as one write sees it.

    Every operation on it but `content` is for the holder of the lock.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.name = hashlib.blake2b(os.fsencode(path.name), digest_size=8).hexdigest()
        self.stem = f"{self.name}-{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Open the folder, and create `.outlast` in it. Raise OSError if that fails."""
        return self.open(make=True)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open(self, *, make: bool) -> Self:
        """Open the folder and `.outlast` in it.

        Raise FileNotFoundError if `.outlast` does not exist and `make` is false.
        """
        with contextlib.ExitStack() as stack:
            self.folder = Directory.open(self.path.parent)
            stack.callback(self.folder.close)
            if make:
                self._make()
            self.own = Directory.open(self.path.parent / OWN, self.folder)
            stack.callback(self.own.close)
            self._check()
            self._stack = stack.pop_all()
        return self

    def _make(self) -> None:
        with contextlib.suppress(FileExistsError):
            self.folder.make_directory(OWN)
            self.folder.sync()

    def _check(self) -> None:
        """Refuse a folder that another user has made, or that everybody may write.

        Share it with the group that may write the parent folder.
        """
        if os.name == "nt":
            return
        status, above = self.own.status, stat.S_IMODE(self.folder.status.st_mode)
        mode, shared = (
            stat.S_IMODE(status.st_mode),
            0o700 if above & stat.S_IWOTH else above & 0o2775,
        )
        if not self.folder.trusts(status.st_uid):
            raise Untrusted(self.own.path, f"it belongs to another user (uid {status.st_uid})")
        if status.st_uid == os.geteuid() and (
            mode & stat.S_IWOTH or mode & 0o777 == 0o700 != shared
        ):
            # The folder is new, or from an older version.
            self.own.change_mode(shared)
        elif mode & stat.S_IWOTH:
            raise Untrusted(self.own.path, "every user may write to it")

    # -- the lock

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        fd = self._lock_file()
        try:
            self._lock(fd, time.monotonic() + LOCK_SECONDS)
            try:
                yield
            finally:
                # Unlock explicitly: close() does not while a forked child has the descriptor.
                if fcntl is not None:
                    fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            os.close(fd)

    def _lock_file(self) -> int:
        with contextlib.suppress(FileExistsError):
            os.close(self.own.create("lock"))
        fd = self.own.open_file("lock")
        try:
            status = os.fstat(fd)
            if status.st_nlink > 1:
                raise Untrusted(self.own.path / "lock", "it is a hard link to another file")
            if os.name != "nt" and status.st_uid == os.geteuid():
                self._share(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _lock(self, fd: int, deadline: float) -> None:
        while fcntl is not None:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Busy(
                        errno.EAGAIN,
                        "another process has held this lock for too long. Check for a stopped or "
                        "frozen worker on this host.",
                        str(self.own.path / "lock"),
                    ) from None
                time.sleep(0.005)
            else:
                return

    def _share(self, fd: int) -> None:
        """Let the group use one of our files as far as it may use `.outlast`."""
        if os.name != "nt":
            os.fchmod(fd, 0o600 | self.own.status.st_mode & 0o060)

    # -- the steps of a write, in order

    def content(self, data: bytes, mode: int | None) -> str:
        """Write the new content to a .tmp file (step 1), and return its name.

        Unless `mode` is given, it gets the permissions of the old file.
        """
        mode = self._mode() if mode is None else mode
        temp = self._temp_name()
        fd = self.own.create(temp)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                if os.name != "nt":
                    os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
        except BaseException:
            self.own.unlink(temp)
            raise
        return temp

    def _temp_name(self) -> str:
        return f"{self.stem}.tmp.{secrets.token_hex(8)}"

    def _mode(self) -> int:
        """Return the permissions of the old file, or those that a new one gets here."""
        old = self.folder.stat(self.path.name)
        if old is not None and stat.S_ISREG(old.st_mode) and self.folder.trusts(old.st_uid):
            return old.st_mode & 0o777
        # The probe exposes nothing: it is empty, and removed.
        probe = self._temp_name()
        fd = self.own.create(probe, 0o666)
        try:
            return os.fstat(fd).st_mode & 0o777
        finally:
            os.close(fd)
            self.own.unlink(probe)

    def announce(self, temp: str, sha256: str, fence: int) -> None:
        """Keep the previous content and write the note (steps 2 and 3).

        Remove what an earlier attempt left.
        """
        before = self.note(fence)
        happened = before is not None and self.happened(before)
        had = before.had if before is not None and happened else self._keep()
        self.write(Note(fence, temp, sha256, had, happened))
        if before is not None and before.temp:
            self.own.unlink(before.temp)

    def give_up(self, temp: str) -> None:
        """Remove content that is not needed.

        If a note names it, clear that first: a missing .tmp would mean that it was renamed.
        """
        note = self._read()
        if note is not None and note.temp == temp:
            self.write(replace(note, temp=""))
        self.own.unlink(temp)

    def replace(self, temp: str) -> None:
        """Rename the content to the file and sync the folder (steps 4 and 5)."""
        self.own.rename(temp, self.folder, self.path.name)
        self.folder.sync()

    def put_back(self, note: Note, fence: int) -> None:
        """Restore the content from before a write, unless the file has changed since."""
        if self.happened(note) and self.sha256() == note.sha256:
            if not note.had:
                self.folder.unlink(self.path.name)
            # If it is not kept, it is already back, and was the same.
            elif self._is_kept():
                self.own.rename(self._kept, self.folder, self.path.name)
            self.folder.sync()
        self.own.unlink(self._kept)
        self.write(replace(note, fence=fence, undone=True))

    def _is_kept(self) -> bool:
        # Do not check the owner: it is the owner of the old file.
        status = self.own.stat(self._kept)
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise Untrusted(self.own.path / self._kept, "it is not a regular file")
        return status is not None

    def happened(self, note: Note) -> bool:
        """Return whether the write took place and was not undone.

        If so, it is durable when this returns.
        """
        renamed = note.happened or (note.temp != "" and self.own.stat(note.temp) is None)
        if not renamed or note.undone:
            return False
        # The process that renamed it may have died before its sync.
        self.folder.sync()
        return True

    def sha256(self) -> str | None:
        """Return the digest of the current file; None if there is no regular file."""
        try:
            fd = self.folder.open_file(self.path.name, check_owner=False)
        except (FileNotFoundError, Untrusted):
            return None
        with os.fdopen(fd, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _keep(self) -> bool:
        """Give the current file another name. Return False if there is none."""
        self.own.unlink(self._kept)
        try:
            self.folder.link(self.path.name, self.own, self._kept)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            self._copy()
        return self._is_kept()

    def _copy(self) -> None:
        source = self.folder.open_file(self.path.name, check_owner=False)
        with os.fdopen(source, "rb") as old, os.fdopen(self.own.create(self._kept), "wb") as kept:
            shutil.copyfileobj(old, kept)
            kept.flush()
            if os.name != "nt":
                status = os.fstat(old.fileno())
                os.fchmod(kept.fileno(), status.st_mode & 0o777)
                os.utime(kept.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(kept.fileno())

    @property
    def _kept(self) -> str:
        return f"{self.stem}.kept"

    # -- notes

    def note(self, fence: int) -> Note | None:
        """Return the note about this write. Raise StaleFence if a younger claim has handled it."""
        note = self._read()
        if note is not None and note.fence > fence:
            raise StaleFence(str(self.path), fence, note.fence)
        return note

    def _read(self) -> Note | None:
        name = f"{self.stem}.json"
        try:
            fd = self.own.open_file(name)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            text = file.read(NOTE_BYTES_MAX + 1)
        try:
            note = Note(**json.loads(text))
            # It names the file to remove, which must be one of this write's, or none.
            named = _NAME.fullmatch(note.temp) if note.temp else None
            is_own = note.temp == "" or (
                named is not None and named[1] == self.stem and ".tmp." in note.temp
            )
        except (ValueError, TypeError, RecursionError):
            is_own = False
        if not is_own or type(note.fence) is not int:
            raise Untrusted(self.own.path / name, "it is damaged, or another program wrote it")
        return note

    def write(self, note: Note) -> None:
        """Write the note. It and the other changes in `.outlast` are durable when this returns."""
        fresh = f"{self.stem}.new"
        # An attempt that died may have left one.
        self.own.unlink(fresh)
        with os.fdopen(self.own.create(fresh), "wb") as file:
            file.write(json.dumps(asdict(note)).encode())
            file.flush()
            self._share(file.fileno())
            os.fsync(file.fileno())
        self.own.rename(fresh, self.own, f"{self.stem}.json")
        self.own.sync()

    def tidy(self) -> None:
        """Remove what is too old, or too many versions of one file.

        This happens at one write in thirty, and hourly.
        """
        # The write has happened, so an error here must not suggest otherwise.
        with contextlib.suppress(OSError):
            lock = self.own.regular("lock")
            if lock is not None and (
                lock.st_mtime < time.time() - TIDY_SECONDS or not secrets.randbelow(30)
            ):
                self.own.touch("lock")
                tidy(self.own)


def tidy(own: Directory) -> None:
    """Remove old notes and the files they name. The caller holds the lock.

    A note is removed first: without it, the other files mean nothing.
    """
    writes: dict[str, list[tuple[float, str]]] = defaultdict(list)
    rest: list[str] = []
    for entry, status in own.entries():
        found = _NAME.fullmatch(entry)
        if found is None:
            continue
        if found[2] == "json":
            writes[entry.partition("-")[0]].append((status.st_mtime, found[1]))
        elif status.st_mtime < time.time() - TIDY_SECONDS:
            rest.append(entry)
    known: set[str] = set()
    for of_one in writes.values():
        for number, (at, stem) in enumerate(sorted(of_one, reverse=True)):
            if number < KEPT_MAX and at > time.time() - KEPT_SECONDS:
                known.add(stem)
            else:
                own.unlink(f"{stem}.json")
                own.unlink(f"{stem}.kept")
    for left in rest:
        if left.partition(".")[0] not in known:
            own.unlink(left)
