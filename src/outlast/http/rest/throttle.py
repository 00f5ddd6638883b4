"""Limit how often a peer may present wrong credentials."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

WRONG_MAX = 10
"""How many wrong credentials a peer may present at once."""
REFILL_SECONDS = 2.0
"""Seconds until a peer may present one more."""
PEERS_MAX = 10_000
"""How many peers are remembered. The one that was quiet for longest is forgotten first."""
KNOWN_MAX = 10_000


class Throttle:
    """Give each peer a budget of wrong credentials.

    A peer without a budget is refused before its credentials are compared, unless they were right
    before. So callers who share a proxy with an attacker continue.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """How much each peer had spent, and when."""
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        """Which peers presented which valid credentials, by digest."""

    def seconds_to_wait(self, peer: str, digest: bytes) -> float:
        """Return 0.0 if the credentials may be compared, otherwise in how many seconds."""
        if (peer, digest) in self._known:
            return 0.0
        return max(0.0, (self._left_of(peer) - WRONG_MAX + 1) * REFILL_SECONDS)

    def note_wrong(self, peer: str) -> None:
        """Charge a peer for wrong credentials."""
        self._spent[peer] = (self._left_of(peer) + 1, self._clock())
        self._spent.move_to_end(peer)
        if len(self._spent) > PEERS_MAX:
            self._spent.popitem(last=False)

    def note_right(self, peer: str, digest: bytes) -> None:
        """Remember that these credentials were valid."""
        self._known[peer, digest] = None
        self._known.move_to_end((peer, digest))
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def forget(self, peer: str, digest: bytes) -> None:
        """Forget credentials that are no longer valid."""
        self._known.pop((peer, digest), None)

    def _left_of(self, peer: str) -> float:
        spent, at = self._spent.get(peer, (0.0, 0.0))
        return max(0.0, spent - (self._clock() - at) / REFILL_SECONDS)


def peer_key(scope: Any) -> str:
    """Return the key of a peer: its address, or the network of an IPv6 address."""
    client = scope.get("client")
    if client is None:
        return ""
    try:
        address = ip_address(str(client[0]))
    except ValueError:
        return str(client[0])
    mapped = getattr(address, "ipv4_mapped", None)
    if address.version == 4 or mapped is not None:
        return str(mapped or address)
    return address.exploded[:19]
