"""Outlast beside the store it writes to: `python -m bench.own`; see bench/README.md."""
