"""Send fences to HTTP servers, and check them there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from threading import Lock
from typing import Protocol
from urllib.parse import quote, unquote

from outlast.errors import StaleFence
from outlast.fencing.claim import FENCE_MAX, claim_of

RUN_HEADER = "Outlast-Run"
"""The header with the id of the calling run."""

FENCE_HEADER = "Outlast-Fence"
"""The header with the fence of the call.

`read_headers` reads both, `FenceGate` refuses an older fence.
"""


class Headers(Protocol):
    """Any mapping of header names to values: http.server's, Starlette's, httpx's, a dict."""

    def items(self) -> Iterable[tuple[str, str]]: ...


def fence_headers(run: str | None = None, *, fence: int | None = None) -> dict[str, str]:
    """Return the headers that identify the writer to a server.

    They look like `{"Outlast-Run": "order-7", "Outlast-Fence": "42"}`. Characters that are not
    plain in a header are percent-encoded (UTF-8). `read_headers` decodes them.
    """
    run, fence = claim_of(run, fence)
    return {RUN_HEADER: quote(run, safe="/:@+="), FENCE_HEADER: str(fence)}


def read_headers(headers: Headers) -> tuple[str, int]:
    """Return the run's id and the fence of a request.

    Raise ValueError if they are missing, doubled or malformed: answer 400.
    """
    found: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower in {RUN_HEADER.lower(), FENCE_HEADER.lower()}:
            if lower in found:
                raise ValueError(f"the header {name} occurs twice.")
            found[lower] = value.strip()
    run, fence = found.get(RUN_HEADER.lower(), ""), found.get(FENCE_HEADER.lower(), "")
    if not run:
        raise ValueError(f"the header {RUN_HEADER} is missing.")
    if not (
        fence.isascii() and fence.isdigit() and len(fence) <= 16 and 0 < int(fence) <= FENCE_MAX
    ):
        raise ValueError(f"the header {FENCE_HEADER} is not a fence: {fence[:40]!r}.")
    return unquote(run, errors="strict"), int(fence)


class FenceGate:
    """Check fences on the server's side.

    It is for a threaded server that keeps the guarded data in this process or on this host.

        with gate.passing("/orders/7", fence):      # StaleFence: answer 409
            write()

    `newest` holds the highest fence of each resource. It should last as long as the data that it
    guards: a dict is lost with the process, and a stale writer may pass after that. The gate lets
    one write pass at a time. A server whose data outlives its process, or an async server, uses
    `guard_sql` in the transaction that writes, with the fence from the request.
    """

    def __init__(self, newest: MutableMapping[str, int] | None = None) -> None:
        self.newest: MutableMapping[str, int] = {} if newest is None else newest
        self._lock = Lock()

    @contextmanager
    def passing(self, resource: str, fence: int) -> Iterator[None]:
        """Hold the gate while the block writes.

        Raise StaleFence before the block is entered if a younger claim has passed.
        """
        claim_of(resource, fence)
        with self._lock:
            newest = self.newest.get(resource)
            if newest is not None and newest > fence:
                raise StaleFence(resource, fence, newest)
            self.newest[resource] = fence
            yield
