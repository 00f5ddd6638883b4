"""Choose a port for a server that a test starts again and again."""

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a port outside the range of outgoing connections, which stays free while the server is dead."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
