import httpx
import pytest
from http_tools import Worker, own_address

from outlast.http import Server
from support.waiting import WAIT_SECONDS, wait_until


@pytest.fixture
def worker() -> Worker:
    return Worker()


class Servers:
    """Start servers for one worker. Call it with an address to get a URL."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.started: list[Server] = []

    def __call__(
        self, address: str = "127.0.0.1:0", *, secret: str = "", health_stall: float = 0.0
    ) -> str:
        server = Server(self.worker, address, secret, health_stall)
        server.start()
        self.started.append(server)
        return server.url

    def count_connections(self) -> int:
        return sum(len(server._uvicorn.server_state.connections) for server in self.started)

    def wait_until_idle(self) -> None:
        """Wait until every connection is closed and every request is answered or given up."""
        wait_until(
            lambda: (
                not any(
                    server._uvicorn.server_state.connections or server._uvicorn.server_state.tasks
                    for server in self.started
                )
            )
        )


@pytest.fixture(scope="module")
def _stopping():
    """Wait for the servers of a module at its end. Each ends with a tick of 0.1 s, while other tests go on."""
    servers: list[Server] = []
    yield servers
    for server in servers:
        server.stop(WAIT_SECONDS)
        assert not server._thread.is_alive()


@pytest.fixture
def serve(worker, _stopping):
    servers = Servers(worker)
    yield servers
    worker.gate.set()
    for server in servers.started:
        server.stop(0)
    _stopping.extend(servers.started)


@pytest.fixture
def client():
    """Yield a client. Without TLS it loads no certificates, which takes longer than most of these tests."""
    with httpx.Client(timeout=WAIT_SECONDS, trust_env=False, verify=False) as client:
        yield client


@pytest.fixture
def elsewhere() -> str:
    address = own_address()
    if address is None:
        pytest.skip("this machine has only loopback")
    return address
