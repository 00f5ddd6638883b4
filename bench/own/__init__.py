"""Measure Outlast beside the store it writes to. See bench/README.md."""
