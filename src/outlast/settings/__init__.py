"""Settings: what they are, where they come from, and what is wrong with them."""

from outlast.settings.settings import Settings

__all__ = ["Settings"]
