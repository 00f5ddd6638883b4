"""Define the errors of a client about the server itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlast.errors import OutlastError, StoreUnavailable


class ServerUnavailable(StoreUnavailable):
    """The HTTP API did not answer, although the request was repeated.

    The message says whether an action may have been done.
    """


class ApiError(OutlastError):
    """The HTTP API refused a request for a reason that has no exception class.

    `status` is the status of the answer, and `document` its problem document.
    """

    def __init__(
        self, status: int, message: str, document: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.document = dict(document or {})

    def __str__(self) -> str:
        return f"{self.message} (status {self.status})"
