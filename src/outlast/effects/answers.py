"""The outcome of an HTTP call: an answer, or an exception that says whether the call happened.

    OutlastError
    └── HTTPFailure
        ├── HTTPNotSent     nothing was sent: it did not happen
        ├── HTTPRefused     the answer says that it was not done: it did not happen
        └── HTTPUnclear     no answer, or an ambiguous one: it may have happened

If the server refuses a stale fence, the call raises `StaleFence`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outlast.errors import OutlastError

Meaning = Literal["happened", "refused", "unclear"]
"""What a status says about the act."""

BODY_SHOWN_MAX = 2000
"""Characters of a body that an exception keeps."""

_UNCLEAR = frozenset({301, 302, 408, 409, 499})
_HAPPENED = frozenset({303, 304})


def meaning(status: int, statuses: Mapping[int, Meaning] | None = None) -> Meaning:
    """Return what a status means, unless `statuses` overrides it.

    - 2xx, 303 and 304: it happened.
    - 4xx except 408, 409 and 499, and 300, 305 to 308: it did not happen. A redirect is not
      followed, because that would send the headers elsewhere.
    - Anything else, like 5xx: unclear. So is 409: it may be a conflict, or the same key in flight.
    """
    if statuses is not None and status in statuses:
        return statuses[status]
    if 200 <= status < 300 or status in _HAPPENED:
        return "happened"
    if 300 <= status < 500 and status not in _UNCLEAR:
        return "refused"
    return "unclear"


@dataclass(frozen=True)
class HTTPAnswer:
    """An answer as it is recorded. `headers` (lower case) contains only those to keep."""

    status: int
    headers: dict[str, str]
    body: str = ""
    """Text if it is UTF-8, else base64."""
    is_base64: bool = False
    is_cut: bool = False
    """The body was longer than the limit, and the rest was dropped."""

    @classmethod
    def of(
        cls, status: int, headers: dict[str, str], content: bytes, *, is_cut: bool = False
    ) -> HTTPAnswer:
        try:
            return cls(status, headers, content.decode(), is_cut=is_cut)
        except UnicodeDecodeError:
            return cls(
                status, headers, base64.b64encode(content).decode(), is_base64=True, is_cut=is_cut
            )

    @property
    def content(self) -> bytes:
        """Return the body in bytes; only its beginning if it `is_cut`."""
        return base64.b64decode(self.body) if self.is_base64 else self.body.encode()

    @property
    def text(self) -> str:
        """Return the body as text. Raise ValueError if it is not UTF-8: use `content` then."""
        if self.is_base64:
            raise ValueError("the body is not UTF-8: its bytes are in .content.")
        return self.body

    def json(self) -> Any:
        """Return the body, parsed as JSON. Raise ValueError if it is not JSON, or was cut."""
        if self.is_cut:
            raise ValueError(
                "the body was longer than body_size_max, and was cut: it cannot be read as JSON."
            )
        return json.loads(self.content)


class HTTPFailure(OutlastError):
    """A call without a successful answer. `status` is 0 if there was no answer."""

    def __init__(self, method: str, url: str, status: int = 0, detail: str = "") -> None:
        self.method, self.url, self.status, self.detail = (
            method,
            url,
            status,
            detail[:BODY_SHOWN_MAX],
        )
        super().__init__(method, url, status, self.detail)

    def __str__(self) -> str:
        answer = f"{self.status} {self.detail}".strip() if self.status else self.detail
        return f"{self.method} {self.url}: {self._means}{f' ({answer})' if answer else ''}."

    _means = "it failed"


class HTTPNotSent(HTTPFailure):
    """Nothing was sent, so the call did not happen.

    No connection was made, or the request cannot be built.
    """

    _means = "nothing was sent, so it did not happen"


class HTTPRefused(HTTPFailure):
    """The server answered that it has not done it. The call did not happen."""

    _means = "the server refused it, so it did not happen"


class HTTPUnclear(HTTPFailure):
    """There was no answer, or one that does not say whether the call happened."""

    _means = "it is unknown whether it happened"
