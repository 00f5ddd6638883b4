"""Serve the routes from a thread with its own event loop.

So the server answers while the program's event loop is blocked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from outlast.errors import OutlastError
from outlast.http.listening_socket import listen, url_of
from outlast.http.routes import extra, routes_at
from outlast.http.status import HasStatusProvider, StatusProvider
from outlast.settings.http_address import parse

if TYPE_CHECKING:
    import uvicorn

log = logging.getLogger("outlast.http")


class Server:
    """Serve the routes of an Outlast on `address` from `start` to `stop`.

    It answers through the whole drain, and while the program's event loop is blocked. `secret` and
    `health_stall` default to the app's settings. A forked child does not serve.

    Limits: a request must be complete and its answer read within 5 s, or the connection is cut. At
    64 connections, the oldest one is cut. Headers may have 8 KB, a body 1 KB.
    """

    def __init__(
        self,
        provider: StatusProvider | HasStatusProvider,
        address: str,
        secret: str | None = None,
        health_stall: float | None = None,
    ) -> None:
        parse(address)
        self._status_provider = provider
        self._address = address
        self._secret = secret
        self._health_stall = health_stall
        self._url = ""
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._uvicorn: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Return the URL of the server for clients on this machine, with the real port."""
        if not self._url:
            raise OutlastError("this HTTP server has not been started: its port is not known yet.")
        return self._url

    def start(self) -> None:
        """Start listening before returning.

        Raise SettingsError if the server cannot listen, or if the extra `http` is not installed.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise OutlastError(f"this HTTP server is already running at {self._url}.")
            host, _ = parse(self._address)
            app = routes_at(self._status_provider, host, self._secret, self._health_stall)
            with extra():
                from outlast.http.uvicorn_adapter import server_of
            self._listener = listen(self._address)
            self._url = url_of(self._listener)
            self._uvicorn = server_of(app)
            self._thread = threading.Thread(
                target=self._serve,
                args=(self._uvicorn, self._listener),
                name="outlast-http",
                daemon=True,
            )
            _servers.add(self)
            self._thread.start()
            log.info("Serving HTTP at %s", self._url, extra={"event": "serving", "url": self._url})

    def stop(self, timeout: float = 2.0) -> None:
        """Stop accepting connections, finish the answers in flight, and end the thread.

        Wait for `timeout` seconds at most.
        """
        with self._lock:
            server, thread = self._uvicorn, self._thread
        if server is None or thread is None:
            return
        server.should_exit = True
        if thread is threading.current_thread():
            return
        thread.join(timeout)
        if thread.is_alive() and timeout > 0:
            server.force_exit = True
            log.warning("The HTTP server at %s did not stop within %g s.", self._url, timeout)

    async def stopped(self, timeout: float) -> None:
        """Do the same from a coroutine, without a thread: there may be none available."""
        thread = self._thread
        self.stop(0.0)
        until = time.monotonic() + timeout
        # A thread sends no notification when it ends.
        while (  # noqa: ASYNC110
            thread is not None and thread.is_alive() and time.monotonic() < until
        ):
            await asyncio.sleep(0.01)

    def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(_serve(server, listener))
        except BaseException:
            log.exception("The HTTP server at %s failed and has stopped.", self._url)
        finally:
            listener.close()

    def _in_child(self) -> None:
        """Release the parent's sockets in a forked child.

        The serving thread exists only in the parent, but the child inherits its sockets, which
        would keep the port and the clients' connections open.
        """
        held: list[Any] = [] if self._listener is None else [self._listener]
        if self._uvicorn is not None:
            connections = self._uvicorn.server_state.connections
            held += [connection.transport.get_extra_info("socket") for connection in connections]
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in {sock.fileno() for sock in held} - {-1}:
            # Replace the descriptors instead of closing them: the objects that own them close them
            # again later.
            os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)
        self._forget()


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    await server.serve(sockets=[listener])
    # These clients do not read.
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)


_servers: WeakSet[Server] = WeakSet()


def _in_child() -> None:
    for server in list(_servers):
        server._in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
