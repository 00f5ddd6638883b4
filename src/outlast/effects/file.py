"""Write a file as an effect: never half-written, never lost, never by an overtaken process.

    from outlast.effects import write_file

    written = await write_file.aio("/srv/reports/7.md", text)       # in an async workflow
    written = write_file("/srv/reports/7.md", text)                 # in a sync one

A reader sees the complete old content or the complete new content, at every moment and after every
crash. When the effect is recorded, the new content is on the disk. Compensation restores what was
there before, or removes the file if there was none. A file that has been written by others since is
left as it is. `outlast.effects.atomic_dir` explains how, and describes the folder `.outlast` that
it keeps beside the file. The folder may be deleted when no run that wrote there is in flight.

`write_file.__doc__` lists what it does not cover.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outlast.api.context import current
from outlast.api.effect import _NEEDED, KEY, Happened, SyncEffect
from outlast.api.step import Awaits
from outlast.effects.atomic_dir import OWN, AtomicDir, Note
from outlast.effects.directory import resolved
from outlast.errors import OutlastError, StaleFence
from outlast.errors.sentences import stopped

DOC = """Write a whole file: `write_file(path, text)` or `write_file(path, data=b"...")`.

In an async workflow, call `await write_file.aio(...)`. The content is recorded, so its length is
limited by `value_size_max`. The path must be absolute. If it raises FileNotWritten, the file is
unchanged.

If the run is compensated, the earlier content is restored, or the file is removed if there was
none. For that, and to refuse processes whose claim is older, a folder `.outlast` is kept beside the
file. It may be deleted when no run that wrote there is in flight.

A `.outlast`, a file in it, or a symbolic link in the path that belongs to another user is refused
with FileNotWritten. If a group may write to the folder and the folder has the setgid bit
(`chmod 2770`), its members share `.outlast`. In a folder that everyone may write to, only one user
can write files this way.

What it does not cover:

- Programs that write the file without this effect are not locked out. If two runs write it, the
  last one wins. If something else has written the file since, compensation leaves it as it is.
- If two runs write one file, and first the earlier and then the later one is compensated, the
  content of the earlier one is restored.
- The owner, ACLs and extended attributes of an old file are not kept. Its permissions are.
- On a network file system it is as reliable as that system's `flock` and `rename`. On Windows
  there is no lock: a process whose claim is older is not refused.
- A process that is stopped (SIGSTOP) in the milliseconds in which it holds the lock delays the
  others until it continues or ends.
- After 7 days, or 100 later writes to the file, an earlier version is deleted. Compensation is then
  refused, and a person decides.
"""
"""The `help()` text of `write_file`, and of every effect that `file_effect` makes."""

_ABSOLUTE = "the path must be absolute: another worker may have another working directory"


@dataclass(frozen=True)
class FileWritten:
    """A file that was written. `path` is the real path if the given one was a symbolic link."""

    path: str
    size: int
    sha256: str


class FileNotWritten(OutlastError):
    """The file was not written and is unchanged.

    `errno` is the system's error number, or 0 if there is none.
    """

    def __init__(self, path: str, reason: str, errno: int = 0) -> None:
        self.path = path
        self.reason = reason
        self.errno = errno
        super().__init__(path, reason, errno)

    def __str__(self) -> str:
        return f"{self.path} was not written and is unchanged: {stopped(self.reason)}"


class FileNotRestored(OutlastError):
    """The content before a write is no longer known, so nothing was done.

    Restore the file by hand, then run `outlast decide`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)

    def __str__(self) -> str:
        return (
            f"the earlier content of {self.path} is no longer known (too old, too many later "
            "writes, or `.outlast` was deleted). The file was left as it is. Restore it by hand, "
            "then run `outlast decide`."
        )


def write(path: str, data: bytes, *, key: str, fence: int, mode: int | None = None) -> FileWritten:
    """Replace a file atomically and durably, as `write_file` does.

    Use it in your own effect when the content is too long to be recorded as an argument, and pass
    `current().fence`. Raise FileNotWritten if the file is unchanged, and StaleFence if it is
    unchanged because a younger claim is in charge. After any other exception, `happened` tells
    whether the write took place.
    """
    digest = hashlib.sha256(data).hexdigest()
    with ExitStack() as stack:
        with _not_written(path):
            real = real_path(path)
            folder = stack.enter_context(AtomicDir(real, key))
            temp = folder.content(data, mode)
        try:
            with _not_written(path):
                stack.enter_context(folder.locked())
                folder.announce(temp, digest, fence)
        except (FileNotWritten, StaleFence):
            with suppress(OSError):
                folder.give_up(temp)
            raise
        folder.replace(temp)
        folder.tidy()
    return FileWritten(str(real), len(data), digest)


def happened(path: str, *, key: str, fence: int) -> bool:
    """Return whether the write under this key took place, even if the file has changed since.

    From now on, an older fence is refused.
    """
    with AtomicDir(real_path(path), key) as folder, folder.locked():
        note = folder.note(fence)
        if note is not None and folder.happened(note):
            return True
        folder.write(Note(fence) if note is None else replace(note, fence=fence))
        return False


def undo(path: str, *, key: str, fence: int) -> None:
    """Restore the file's content from before the write under this key.

    Further calls have no effect. Raise FileNotRestored if that content is no longer known.
    """
    where = Path(path)
    try:
        opened = AtomicDir(resolved(str(where.parent)) / where.name, key).open(make=False)
    except FileNotFoundError:
        raise FileNotRestored(path) from None
    with ExitStack() as stack:
        stack.push(opened)
        stack.enter_context(opened.locked())
        note = opened.note(fence)
        if note is None:
            raise FileNotRestored(path)
        opened.put_back(note, fence)


def real_path(path: str) -> Path:
    """Return the file's real path.

    Raise ValueError if the path is relative, inside `.outlast`, or not a regular file, and OSError
    if it leads through another user's symbolic link.
    """
    if not Path(path).is_absolute():
        raise ValueError(_ABSOLUTE)
    real = resolved(path)
    if real.parent.name == OWN:
        raise ValueError(f"{OWN} is reserved for Outlast: choose another folder")
    try:
        mode = real.lstat().st_mode
    except FileNotFoundError:
        return real
    if not stat.S_ISREG(mode):
        raise ValueError("it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file")
    return real


@contextmanager
def _not_written(path: str) -> Iterator[None]:
    """Turn errors before the rename into FileNotWritten."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename and str(error.filename) != path else ""
        raise FileNotWritten(path, f"{error.strerror or error}{where}", error.errno or 0) from error
    except ValueError as error:
        raise FileNotWritten(path, str(error)) from error


class FileEffect(SyncEffect[..., FileWritten]):
    """An effect that writes a file, made by `file_effect`.

    Call `write_file(path, text)` in a sync workflow, `await write_file.aio(path, text)` in an async
    one, or pass `data=` for bytes. `mode` sets the permissions and defaults to those of the old
    file. All arguments are recorded.
    """

    def __call__(
        self,
        path: str | os.PathLike[str],
        text: str | None = None,
        *,
        data: bytes | None = None,
        mode: int | None = None,
        key: str = KEY,
    ) -> FileWritten:
        return super().__call__(
            *_path(path, text, data), **_given(text=text, data=data, mode=mode, key=key)
        )

    def aio(
        self,
        path: str | os.PathLike[str],
        text: str | None = None,
        *,
        data: bytes | None = None,
        mode: int | None = None,
        key: str = KEY,
    ) -> Awaits[FileWritten]:
        return super().aio(
            *_path(path, text, data), **_given(text=text, data=data, mode=mode, key=key)
        )


def _path(path: str | os.PathLike[str], text: str | None, data: bytes | None) -> tuple[str]:
    """Raise FileNotWritten for an invalid call, before anything is recorded."""
    name = os.fspath(path)
    if (text is None) is (data is None):
        raise FileNotWritten(name, "give the content as text, or as data=")
    if not Path(name).is_absolute():
        raise FileNotWritten(name, _ABSOLUTE)
    return (name,)


def _given(**arguments: Any) -> dict[str, Any]:
    return {
        name: value for name, value in arguments.items() if value is not None and value is not KEY
    }


def file_effect(
    name: str,
    *,
    timeout: float = 60.0,
    retries: int = 3,
    backoff: float = 1.0,
    backoff_max: float = 60.0,
    undo: None = _NEEDED,
) -> FileEffect:
    """Make an effect like `write_file` with other options (see `@effect`).

    With `undo=None`, the file stays when the run is compensated. Call this at the top of a module:
    after a crash the effect is found again by its name.
    """
    module = sys._getframe(1).f_globals.get("__name__", __name__)
    return _make(
        name,
        module,
        undo=undo,
        timeout=timeout,
        retries=retries,
        backoff=backoff,
        backoff_max=backoff_max,
    )


def _make(name: str, module: str, **options: Any) -> FileEffect:
    def act(
        path: str,
        text: str | None = None,
        data: bytes | None = None,
        mode: int | None = None,
        key: str = KEY,
    ) -> FileWritten:
        return write(path, _content(text, data), key=key, fence=current().fence, mode=mode)

    def ask(
        path: str, text: str | None = None, data: bytes | None = None, key: str = KEY
    ) -> Happened[FileWritten] | None:
        if not happened(path, key=key, fence=current().fence):
            return None
        content = _content(text, data)
        return Happened(
            FileWritten(str(real_path(path)), len(content), hashlib.sha256(content).hexdigest())
        )

    def put_back(written: FileWritten, effect_key: str) -> None:
        undo(written.path, key=effect_key, fence=current().fence)

    act.__module__, act.__qualname__, act.__name__ = module, name, name
    put_back.__module__, put_back.__qualname__ = module, f"undo {name}"
    act.__doc__ = DOC.replace("write_file", name)
    made = FileEffect(act, name=name, failed_on=FileNotWritten, **options)
    made.verify(ask)
    if options["undo"] is _NEEDED:
        made.compensate(name=f"undo {name}")(put_back)
    return made


def _content(text: str | None, data: bytes | None) -> bytes:
    return text.encode() if text is not None else data or b""


write_file = _make("write_file", __name__, timeout=60.0, retries=3, undo=_NEEDED)
"""Write a file of up to `value_size_max`. Compensating the run restores what was there before."""
