"""Log lines as `outlast worker` writes them, for your own program: `outlast.logs.configure()`."""

from outlast.telemetry.logs import JSONFormatter, TextFormatter, configure

__all__ = ["JSONFormatter", "TextFormatter", "configure"]
