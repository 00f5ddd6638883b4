"""Settings: their values, their sources and their validation."""

from outlast.settings.settings import Settings

__all__ = ["Settings"]
