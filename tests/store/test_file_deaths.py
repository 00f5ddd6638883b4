"""The process is killed, or the power fails, at any operation on any file: what was acknowledged is there, whole, and nothing else is."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from file_history import (
    Disk,
    dump,
    opened,
    quick_folder,
    small_files,
    states,
    write_history,
)

from outlast.testing.store_hooks import kill

LONG = "OUTLAST_TEST_KILLS" in os.environ
"""Try whatever a power cut may leave at every operation, and a kill at every third; otherwise a sample."""

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def quick_path():
    with quick_folder() as path:
        yield path


class Simulated:
    """What is on a disk and what is only in the kernel's memory, by the strictest reading: a file's content is durable by fsync of the file, a
    name by fsync of its folder, and nothing else is durable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ids: dict[str, int] = {}
        self._now: dict[int, bytes] = {}
        self._synced: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        """Durable ones. A folder has an id too."""
        self._folders: set[str] = {str(folder)}

    def meddle(self, name, path, act, *args):
        result = act()
        if name == "open" and path not in self._ids and Path(path).is_file():
            self._ids[path] = len(self._now)
            self._now[self._ids[path]] = b""
        if name == "mkdir":
            self._folders.add(path)
        if name == "replace":
            self._ids[str(args[0])] = self._ids.pop(path)
        if name == "unlink":
            del self._ids[path]
        if name in ("write", "ftruncate"):
            self._now[self._ids[path]] = Path(path).read_bytes()
        if name == "fsync" and path in self._folders:
            here = {
                file
                for file in {*self._names, *self._ids, *self._folders}
                if str(Path(file).parent) == path
            }
            for file in here:
                self._names.pop(file, None)
                if file in self._ids:
                    self._names[file] = self._ids[file]
                elif file in self._folders:
                    self._names[file] = -1
        elif name == "fsync":
            self._synced[self._ids[path]] = self._now[self._ids[path]]
        return result

    def crashed(self) -> list[dict[str, bytes | None]]:
        """What a power cut may leave, by path below the folder (None: a folder): with what was not synced of names lost, or of contents, or
        of both; or all of it there."""
        names = [{**dict.fromkeys(self._folders, -1), **self._ids}, self._names]
        return [
            {
                os.path.relpath(path, self.folder): None
                if number < 0
                else contents.get(number, b"")
                for path, number in there.items()
                if path != str(self.folder)
                and (str(Path(path).parent) in there or Path(path).parent == self.folder)
            }
            for there in names
            for contents in (self._now, self._synced)
        ]


class Cuts:
    """A power cut after every operation: the store is opened as it was left, and must hold one of the states that it may hold then."""

    def __init__(self, folder: Path, target: Path, expected: list[dict]) -> None:
        self.disk, self._target, self._expected = Simulated(folder), target, expected
        self.told = self.looks = self._points = 0
        self.in_flight = True
        """A commit may be there that nobody was told of yet."""
        self._seen: dict[str, int] = {}

    def meddle(self, name, path, act, *args):
        result = self.disk.meddle(name, path, act, *args)
        if name != "open":
            self.look((name, path))
        return result

    def look(self, point) -> None:
        self._points += 1
        for number, files in enumerate(self.disk.crashed()):
            if not LONG and (number + self._points) % 4:
                continue
            seen = repr(sorted(files.items()))
            if self._seen.get(seen) == self.told:
                continue
            self._seen[seen] = self.told
            self.looks += 1
            for path, content in sorted(files.items()):
                if content is None:
                    (self._target / path).mkdir(parents=True)
                else:
                    (self._target / path).parent.mkdir(parents=True, exist_ok=True)
                    (self._target / path).write_bytes(content)
            store = opened(self._target)
            found = dump(store)
            store.close()
            assert found in self._expected[self.told : self.told + 1 + self.in_flight], (
                self.told,
                number,
                point,
            )
            shutil.rmtree(self._target)


def test_power_cut_after_any_operation_loses_nothing_that_was_acknowledged(quick_path):
    expected = states(quick_path / "quiet")
    folder = quick_path / "store"
    folder.mkdir()
    cuts = Cuts(folder, quick_path / "crashed", expected)

    def told():
        cuts.told += 1

    with small_files(), Disk(folder, cuts.meddle).on():
        store = opened(folder)
        write_history(store, told)
        store.close()
    assert cuts.told == len(expected) - 1
    assert cuts.looks > 60


def test_power_cut_during_recovery_loses_nothing(quick_path):
    """The store is killed in the middle of its history, and the power fails while it is opened again."""
    expected = states(quick_path / "quiet")
    for commits in range(2, len(expected), 3):
        folder = quick_path / f"store-{commits}"
        folder.mkdir()
        cuts = Cuts(folder, quick_path / "crashed", expected)
        with Disk(folder, cuts.disk.meddle).on():
            died_after(folder, commits)
        cuts.told, cuts.in_flight = commits, False
        with Disk(folder, cuts.meddle).on():
            opened(folder).close()
        assert cuts.looks > 3


class Dead(BaseException):
    pass


def died_after(folder, commits):
    told = [0]

    def enough():
        told[0] += 1
        if told[0] == commits:
            raise Dead

    with small_files():
        store = opened(folder)
        with pytest.raises(Dead):
            write_history(store, enough)
        kill(store)


# -- killed


def lived_until(folder, at: int, half: bool) -> int:
    """A process that is killed at its Nth operation on a file, in the middle of it if it is a write. How many commits it was told of."""
    told_read, told_write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(told_read)
        count = [0]

        def meddle(name, path, act, *args):
            count[0] += 1
            if count[0] == at:
                if half and name == "write":
                    act(args[0][: len(args[0]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return act()

        try:
            with small_files(), Disk(folder, meddle).on():
                store = opened(folder)
                write_history(store, lambda: os.write(told_write, b"."))
                store.close()
        finally:
            os._exit(0)
    os.close(told_write)
    with os.fdopen(told_read, "rb") as said:
        told = len(said.read())
    status = os.waitpid(pid, 0)[1]
    return told if os.WIFSIGNALED(status) else -1


@pytest.mark.parametrize("half", [False, True])
def test_store_killed_at_an_operation_keeps_what_was_acknowledged(quick_path, half):
    expected = states(quick_path / "quiet")
    kills = 0
    # Each operation is looked at, without a process, by the power cuts above.
    for at in range(1 + 3 * half, 10_000, 3 if LONG else 17):
        folder = quick_path / f"store-{at}"
        told = lived_until(folder, at, half)
        if told < 0:
            break
        kills += 1
        store = opened(folder)
        assert dump(store) in expected[told : told + 2], (at, told)
        store.close()
    assert kills > 10
