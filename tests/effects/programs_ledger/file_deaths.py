"""Kill or stop a write, or its undo, at one line after another: `file_deaths.py FOLDER JSON`, with

    before    the content of the file at first, null: there is no file
    at        "write" or "undo": in which of them
    how       "kill", or "stop": it is stopped there, overtaken, and resumed when all is over
    other     somebody else's content, written between the death and the successor; null: nobody's
    changes   true: only at lines before which the folder has changed

For each such line of outlast.effects.file and .folder that is executed: fork, let the child come to that
line, and print what was seen then and after each thing that the successor did. The last line of output is
{"lines": N}: how many lines there were.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from outlast import StaleFence
from outlast.effects import atomic_dir, file

root, options = Path(sys.argv[1]), json.loads(sys.argv[2])
before, at, how, other, changes = (
    options.get(name) for name in ("before", "at", "how", "other", "changes")
)
TRACED = {file.__file__, atomic_dir.__file__}
OURS = "ours " * 50
atomic_dir.LOCK_SECONDS = 0.001  # the only other process is stopped, or dead
atomic_dir.secrets.randbelow = lambda _: (
    1
)  # tidy at no write: the number of lines must be the same each time


def at_each_line(call: Callable[[int], None]) -> None:
    """Call a function with the number of each traced line, before that is executed."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            count += 1
            call(count)
        return trace

    sys.settrace(trace)


def meet_it_at(number: int) -> None:
    def meet_it(line: int) -> None:
        if line == number:
            sys.settrace(None)
            os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)

    at_each_line(meet_it)


def lines_after_changes() -> list[int]:
    """Return the first line, those before which the folder has changed, and one behind the last line.

    A kill at any other line leaves the same files as a kill at the line before it.
    """
    path, found, last = prepared(0), [1], 0
    seen = state(path.parent)

    def look(line: int) -> None:
        nonlocal seen, last
        last, before_it, seen = line, seen, state(path.parent)
        if seen != before_it:
            found.append(line)

    at_each_line(look)
    act(path)
    sys.settrace(None)
    return [*found, last + 1]


def state(place: Path) -> list[tuple[Any, ...]]:
    """Return what a process that looks at a folder could notice: names, links, permissions, contents."""
    found: list[tuple[Any, ...]] = []
    for path in sorted(place.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else None
        found.append((path, status.st_ino, status.st_mode, status.st_nlink, data))
    return found


def content(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def left(path: Path) -> list[str]:
    """What is in `.outlast` besides notes and the lock."""
    own = path.parent / ".outlast"
    names = sorted(name.name for name in own.iterdir()) if own.exists() else []
    return [name for name in names if not name.endswith(".json") and name != "lock"]


def write(path: Path, text: str, key: str, fence: int) -> None:
    file.write(str(path), text.encode(), key=key, fence=fence)


def act(path: Path) -> None:
    if at == "write":
        write(path, OURS, "ours", 1)
    else:
        file.undo(str(path), key="ours", fence=2)


def prepared(number: int) -> Path:
    """Make a folder with what is there before, and return the file's path."""
    path = root / f"{at}-{number}" / "file"
    path.parent.mkdir()
    if before is not None:
        path.write_text(before)
        path.chmod(0o640)
    if at == "undo":
        write(path, OURS, "ours", 1)
    return path


def child(path: Path, number: int) -> int:
    """0: it came to its end; 1: it was refused; 2: it failed."""
    try:
        meet_it_at(number)
        act(path)
        sys.settrace(None)
        return 0
    except StaleFence:
        return 1
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        return 2


def happened(path: Path, seen: dict[str, Any], fence: int) -> None:
    """The successor finds out, and does what was not done."""
    if file.happened(str(path), key="ours", fence=fence):
        seen["happened"] = True
        return
    seen["happened"] = False
    write(path, OURS, "ours", fence)


def successor(path: Path, pid: int, seen: dict[str, Any]) -> None:
    if at == "write":
        try:
            happened(path, seen, 2)
        except (OSError, file.FileNotWritten) as busy:
            assert how == "stop", busy
            seen["held up"] = str(busy)
            seen["went on"] = go_on(pid)
            happened(path, seen, 2)
        seen["inherited"] = content(path)
        if how == "stop":
            write(path, "newer", "newer", 2)
            if "went on" not in seen:
                seen["went on"] = go_on(pid)
            seen["woken"] = content(path)
            return
        file.undo(str(path), key="ours", fence=3)
        seen["undone"] = content(path)
    file.undo(str(path), key="ours", fence=4)
    seen["undone again"] = content(path)


def go_on(pid: int) -> int:
    os.kill(pid, signal.SIGCONT)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def one(number: int) -> bool:
    """Return False if there is no such line."""
    path = prepared(number)
    pid = os.fork()
    if not pid:
        os._exit(child(path, number))
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        print(json.dumps({"lines": number - 1}))
        return False
    seen: dict[str, Any] = {"line": number, "died": content(path)}
    if other is not None:
        path.with_name("other").write_text(other)
        path.with_name("other").rename(path)
    successor(path, pid, seen)
    seen["left"] = left(path)
    seen["mode"] = oct(path.stat().st_mode & 0o777) if path.exists() else None
    print(json.dumps(seen))
    return True


for number in lines_after_changes() if changes else count(1):
    if not one(number):
        break
