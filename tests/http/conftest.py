import httpx
import pytest
from http_tools import Worker, own_address

from outlast.http import Server


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def serve(worker):
    servers = []

    def start(address: str = "127.0.0.1:0", *, secret: str = "", health_stall: float = 0.0) -> str:
        server = Server(worker, address, secret, health_stall)
        server.start()
        servers.append(server)
        return server.url

    yield start
    for server in servers:
        server.stop(5.0)


@pytest.fixture
def client():
    with httpx.Client(timeout=20.0, trust_env=False) as client:
        yield client


@pytest.fixture
def elsewhere() -> str:
    address = own_address()
    if address is None:
        pytest.skip("this machine has only loopback")
    return address
