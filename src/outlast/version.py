"""The version of the library."""

__version__ = "0.1.0"
"""The library's version, as `outlast --version` prints it."""
