"""Ready-made effects: an HTTP call, and an atomic file write.

    from outlast.effects import http_effect, write_file

    charge = http_effect("charge", timeout=30, idempotent=True)

    @workflow
    async def order(number: int) -> str:
        answer = await charge("POST", "https://pay.example/charges", json={"order": number})
        written = await write_file.aio(f"/srv/orders/{number}.json", answer.text)
        return written.sha256

Each is built on `@effect` (see `outlast.api.effect`), with its verify and its compensation.
Importing this is cheap: the first call imports httpx (extra `httpx`).
"""

from outlast.effects.answers import HTTPAnswer, HTTPFailure, HTTPNotSent, HTTPRefused, HTTPUnclear
from outlast.effects.file import (
    FileEffect,
    FileNotRestored,
    FileNotWritten,
    FileWritten,
    file_effect,
    write_file,
)
from outlast.effects.http import HTTPEffect, http_call, http_effect

__all__ = [
    "FileEffect",
    "FileNotRestored",
    "FileNotWritten",
    "FileWritten",
    "HTTPAnswer",
    "HTTPEffect",
    "HTTPFailure",
    "HTTPNotSent",
    "HTTPRefused",
    "HTTPUnclear",
    "file_effect",
    "http_call",
    "http_effect",
    "write_file",
]
