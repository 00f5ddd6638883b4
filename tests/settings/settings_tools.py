"""Read a setting together with its source."""

from outlast.settings.load import load


def found(name, **given):
    """The value of a setting, and where it came from."""
    loaded = load(given)
    return getattr(loaded.settings, name), str(loaded.origins[name])
